// f8, f8_block: 8-bit floats (e4m3). Scales of whole rows are the matrix's (ops/linear.h); f8_block has one for each
// 128 columns of a row, which files keep for 128 rows together; the last of a row may be for fewer.
#pragma once

#include <bit>
#include <cmath>
#include <string_view>

#include "formats/half.h"
#include "formats/round.h"
#include "formats/weight.h"
#include "formats/words.h"

namespace quern {

struct F8 {
  static constexpr FormatId id = FormatId::f8;
  static constexpr std::string_view name = "f8";
  static constexpr int group = 16;
  static constexpr int data_bytes = 16;
  static constexpr int scale_bytes = 0;
  static constexpr int chunk_words = 2;
  static constexpr float error = 1.0F / 16.0F;  // largest error of encode, in parts of the group's largest magnitude,
                                                // which is from 2^-5 to 448

  static constexpr Words<2> load8(const std::byte* data, int i) {
    return {{load_u32(data + 8 * i), load_u32(data + 8 * i + 4)}};
  }
  static constexpr Words<0> load_scales(const std::byte* /*scales*/, int /*i*/) { return {}; }

  static constexpr Eight decode8(Words<2> words, Words<0> /*scales*/, int /*i*/) {
    Eight out;
    for (int j = 0; j < 8; ++j) out.v[j] = e4m3_to_f32(static_cast<uint8_t>(words.v[j / 4] >> (8 * (j % 4))));
    return out;
  }

  static void encode(const float* x, std::byte* data, std::byte* /*scales*/) {
    for (int j = 0; j < group; ++j) data[j] = static_cast<std::byte>(f32_to_e4m3(x[j]));
  }
};

struct F8_Block {
  static constexpr FormatId id = FormatId::f8_block;
  static constexpr std::string_view name = "f8_block";
  static constexpr int group = 128;
  static constexpr int least_columns = F8::group;  // files have part of a block at the end of a row
  static constexpr int data_bytes = 128;
  static constexpr int scale_bytes = 4;  // per group: float
  static constexpr int chunk_words = 2;
  static constexpr float error = 0.036F;  // largest error of encode, in parts of the group's largest magnitude

  static constexpr Words<2> load8(const std::byte* data, int i) { return F8::load8(data, i); }
  static constexpr Words<1> load_scales(const std::byte* scales, int /*i*/) { return {{load_u32(scales)}}; }

  static constexpr Eight decode8(Words<2> words, Words<1> scales, int /*i*/) {
    Eight out = F8::decode8(words, {}, 0);
    for (float& value : out.v) value *= std::bit_cast<float>(scales.v[0]);
    return out;
  }

  /// The value of largest magnitude becomes the largest that 8 bits can say.
  static void encode(const float* x, std::byte* data, std::byte* scales) {
    const float scale = std::fabs(extreme(x, group)) / e4m3_largest;
    store_u32(scales, std::bit_cast<uint32_t>(scale));
    for (int j = 0; j < group; ++j) {
      data[j] = static_cast<std::byte>(scale == 0.0F ? 0 : f32_to_e4m3(x[j] / scale));
    }
  }
};

}  // namespace quern
