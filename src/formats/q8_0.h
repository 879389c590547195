// q8_0: 32 signed values of 8 bits with a float16 scale.   value = scale * q
#pragma once

#include <string_view>

#include "formats/half.h"
#include "formats/round.h"
#include "formats/weight.h"
#include "formats/words.h"

namespace quern {

struct Q8_0 {
  static constexpr FormatId id = FormatId::q8_0;
  static constexpr std::string_view name = "q8_0";
  static constexpr int group = 32;
  static constexpr int data_bytes = 32;  // per group: one signed byte a value
  static constexpr int scale_bytes = 2;  // per group: float16 scale
  static constexpr int chunk_words = 2;
  static constexpr float error = 0.0045F;  // largest error of encode, in parts of the group's largest magnitude

  static constexpr Words<2> load8(const std::byte* data, int i) {
    return {{load_u32(data + 8 * i), load_u32(data + 8 * i + 4)}};
  }
  static constexpr Words<1> load_scales(const std::byte* scales, int /*i*/) { return {{load_u16(scales)}}; }

  /// Values 8i .. 8i+7 of a group.
  static constexpr Eight decode8(Words<2> words, Words<1> scales, int /*i*/) {
    const float scale = f16_to_f32(static_cast<uint16_t>(scales.v[0]));
    Eight out;
    for (int j = 0; j < 8; ++j) {
      out.v[j] = scale * static_cast<float>(static_cast<int8_t>(words.v[j / 4] >> (8 * (j % 4)) & 255U));
    }
    return out;
  }

  static void encode(const float* x, std::byte* data, std::byte* scales) {
    const float scale = through_f16(std::fabs(extreme(x, group)) / 127.0F);
    store_u16(scales, f32_to_f16(scale));
    for (int j = 0; j < group; ++j) data[j] = static_cast<std::byte>((level(x[j], scale, 128, 255) + 128U) & 255U);
  }
};

}  // namespace quern
