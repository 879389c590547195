// q4_1: 32 values of 4 bits with a scale and a minimum, both float16.   value = scale * q + minimum
#pragma once

#include <algorithm>
#include <string_view>

#include "formats/half.h"
#include "formats/round.h"
#include "formats/weight.h"
#include "formats/words.h"

namespace quern {

struct Q4_1 {
  static constexpr FormatId id = FormatId::q4_1;
  static constexpr std::string_view name = "q4_1";
  static constexpr int group = 32;        // values that share a scale record
  static constexpr int data_bytes = 16;   // per group: value j in bits 4j of the words, ascending
  static constexpr int scale_bytes = 4;   // per group: float16 scale, float16 minimum
  static constexpr int chunk_words = 1;   // what decode8 needs of the data for 8 values
  static constexpr float error = 0.069F;  // largest error of encode, in parts of the group's largest magnitude

  static constexpr Words<1> load8(const std::byte* data, int i) { return {{load_u32(data + 4 * i)}}; }
  static constexpr Words<1> load_scales(const std::byte* scales, int /*i*/) { return {{load_u32(scales)}}; }

  /// Values 8i .. 8i+7 of a group.
  static constexpr Eight decode8(Words<1> words, Words<1> scales, int /*i*/) {
    const float scale = f16_to_f32(static_cast<uint16_t>(scales.v[0]));
    const float minimum = f16_to_f32(static_cast<uint16_t>(scales.v[0] >> 16));
    Eight out;
    for (int j = 0; j < 8; ++j) out.v[j] = scale * static_cast<float>(words.v[0] >> (4 * j) & 15U) + minimum;
    return out;
  }

  static void encode(const float* x, std::byte* data, std::byte* scales) {
    const auto [low, high] = std::minmax_element(x, x + group);
    const float minimum = through_f16(*low);
    const float scale = through_f16((*high - *low) / 15.0F);
    store_u16(scales, f32_to_f16(scale));
    store_u16(scales + 2, f32_to_f16(minimum));
    for (int i = 0; i < group / 8; ++i) {
      uint32_t word = 0;
      for (int j = 0; j < 8; ++j) word |= level(x[8 * i + j] - minimum, scale, 0, 15) << (4 * j);
      store_u32(data + 4 * i, word);
    }
  }
};

}  // namespace quern
