// q4_0: 32 values of 4 bits with a float16 scale.   value = scale * (q - 8)
#pragma once

#include <string_view>

#include "formats/half.h"
#include "formats/round.h"
#include "formats/weight.h"
#include "formats/words.h"

namespace quern {

struct Q4_0 {
  static constexpr FormatId id = FormatId::q4_0;
  static constexpr std::string_view name = "q4_0";
  static constexpr int group = 32;
  static constexpr int data_bytes = 16;  // per group: value j in bits 4j of the words, ascending
  static constexpr int scale_bytes = 2;  // per group: float16 scale
  static constexpr int chunk_words = 1;
  static constexpr float error = 0.127F;  // largest error of encode, in parts of the group's largest magnitude

  static constexpr Words<1> load8(const std::byte* data, int i) { return {{load_u32(data + 4 * i)}}; }
  static constexpr Words<1> load_scales(const std::byte* scales, int /*i*/) { return {{load_u16(scales)}}; }

  /// Values 8i .. 8i+7 of a group.
  static constexpr Eight decode8(Words<1> words, Words<1> scales, int /*i*/) {
    const float scale = f16_to_f32(static_cast<uint16_t>(scales.v[0]));
    Eight out;
    for (int j = 0; j < 8; ++j) {
      const int q = static_cast<int>(words.v[0] >> (4 * j) & 15U) - 8;
      out.v[j] = scale * static_cast<float>(q);
    }
    return out;
  }

  /// The value of largest magnitude becomes -8, which all 4 bits can say.
  static void encode(const float* x, std::byte* data, std::byte* scales) {
    const float scale = through_f16(extreme(x, group) / -8.0F);
    store_u16(scales, f32_to_f16(scale));
    for (int i = 0; i < group / 8; ++i) {
      uint32_t word = 0;
      for (int j = 0; j < 8; ++j) word |= level(x[8 * i + j], scale, 8, 15) << (4 * j);
      store_u32(data + 4 * i, word);
    }
  }
};

}  // namespace quern
