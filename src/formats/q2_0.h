// q2_0: 64 values of 2 bits with a float16 scale.   value = scale * (q - 1)
// Also of the stored types of one sign (Q1_0) or of -1, 0 and 1 (TQ1_0, TQ2_0) a value.
#pragma once

#include <cmath>
#include <string_view>

#include "formats/codes.h"
#include "formats/half.h"
#include "formats/round.h"
#include "formats/weight.h"

namespace quern {

struct Q2_0 : Codes<2, 64> {
  static constexpr FormatId id = FormatId::q2_0;
  static constexpr std::string_view name = "q2_0";
  static constexpr int scale_bytes = 2;  // per group: float16 scale
  static constexpr float error = 0.51F;  // largest error of encode, in parts of the group's largest magnitude
  static constexpr int zero = 1;

  template <typename Bytes>
  static constexpr Words<1> load_scales(Bytes scales, int /*i*/) {
    return {{load_u16(scales)}};
  }

  /// Values 8i .. 8i+7 of a group.
  static constexpr Eight decode8(Chunk words, Words<1> scales, int /*i*/) {
    const float scale = f16_to_f32(static_cast<uint16_t>(scales.v[0]));
    Eight out;
    for (int j = 0; j < 8; ++j) out.v[j] = scale * static_cast<float>(static_cast<int>(code(words, j)) - zero);
    return out;
  }

  static void encode(const float* x, std::byte* data, std::byte* scales) {
    const float scale = through_f16(std::fabs(extreme(x, group)));
    store_u16(scales, f32_to_f16(scale));
    store(data, [&](int j) { return level(x[j], scale, zero, 2); });
  }
};

}  // namespace quern
