// q5_0: 32 values of 5 bits with a float16 scale.   value = scale * (q - 16)
#pragma once

#include <string_view>

#include "formats/half.h"
#include "formats/round.h"
#include "formats/weight.h"
#include "formats/words.h"

namespace quern {

struct Q5_0 {
  static constexpr FormatId id = FormatId::q5_0;
  static constexpr std::string_view name = "q5_0";
  static constexpr int group = 32;
  static constexpr int data_bytes = 20;  // per group: low 4 bits in four words as q4_0, then bit 4 of value j in bit j
  static constexpr int scale_bytes = 2;  // per group: float16 scale
  static constexpr int chunk_words = 2;
  static constexpr float error = 0.064F;  // largest error of encode, in parts of the group's largest magnitude

  /// Low bits of eight values, and their eight high bits.
  static constexpr Words<2> load8(const std::byte* data, int i) {
    return {{load_u32(data + 4 * i), static_cast<uint32_t>(data[16 + i])}};
  }
  static constexpr Words<1> load_scales(const std::byte* scales, int /*i*/) { return {{load_u16(scales)}}; }

  /// Values 8i .. 8i+7 of a group.
  static constexpr Eight decode8(Words<2> words, Words<1> scales, int /*i*/) {
    const float scale = f16_to_f32(static_cast<uint16_t>(scales.v[0]));
    Eight out;
    for (int j = 0; j < 8; ++j) {
      const uint32_t q = (words.v[0] >> (4 * j) & 15U) | (words.v[1] >> j & 1U) << 4;
      out.v[j] = scale * static_cast<float>(static_cast<int>(q) - 16);
    }
    return out;
  }

  /// The value of largest magnitude becomes -16, which all 5 bits can say.
  static void encode(const float* x, std::byte* data, std::byte* scales) {
    const float scale = through_f16(extreme(x, group) / -16.0F);
    store_u16(scales, f32_to_f16(scale));
    for (int i = 0; i < group / 8; ++i) {
      uint32_t low = 0;
      uint32_t high = 0;
      for (int j = 0; j < 8; ++j) {
        const uint32_t q = level(x[8 * i + j], scale, 16, 31);
        low |= (q & 15U) << (4 * j);
        high |= q >> 4 << j;
      }
      store_u32(data + 4 * i, low);
      data[16 + i] = static_cast<std::byte>(high);
    }
  }
};

}  // namespace quern
