// q5_1: 32 values of 5 bits with a float16 scale and a float16 minimum.   value = scale * q + minimum
#pragma once

#include <algorithm>
#include <string_view>

#include "formats/codes.h"
#include "formats/half.h"
#include "formats/round.h"
#include "formats/weight.h"

namespace quern {

struct Q5_1 : Codes<5, 32> {
  static constexpr FormatId id = FormatId::q5_1;
  static constexpr std::string_view name = "q5_1";
  static constexpr int scale_bytes = 4;   // per group: float16 scale, float16 minimum
  static constexpr float error = 0.035F;  // largest error of encode, in parts of the group's largest magnitude
  static constexpr int zero = 0;

  template <typename Bytes>
  static constexpr Words<1> load_scales(Bytes scales, int /*i*/) {
    return {{load_u32(scales)}};
  }

  /// Values 8i .. 8i+7 of a group.
  static constexpr Eight decode8(Chunk words, Words<1> scales, int /*i*/) {
    const float scale = f16_to_f32(static_cast<uint16_t>(scales.v[0]));
    const float minimum = f16_to_f32(static_cast<uint16_t>(scales.v[0] >> 16));
    Eight out;
    for (int j = 0; j < 8; ++j) out.v[j] = scale * static_cast<float>(code(words, j)) + minimum;
    return out;
  }

  static void encode(const float* x, std::byte* data, std::byte* scales) {
    const auto [low, high] = std::minmax_element(x, x + group);
    const float minimum = through_f16(*low);
    const float scale = through_f16((*high - minimum) / 31.0F);
    store_u16(scales, f32_to_f16(scale));
    store_u16(scales + 2, f32_to_f16(minimum));
    store(data, [&](int j) { return level(x[j] - minimum, scale, 0, 31); });
  }
};

}  // namespace quern
