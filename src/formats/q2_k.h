// q2_k: 256 values of 2 bits in sixteen blocks of 16, each with a scale and a minimum of 4 bits, in units of two
// float16.   value = (d * scale) * q - (dmin * minimum)
#pragma once

#include <string_view>

#include "formats/codes.h"
#include "formats/half.h"
#include "formats/round.h"
#include "formats/weight.h"

namespace quern {

struct Q2_K : Codes<2, 256> {
  static constexpr FormatId id = FormatId::q2_k;
  static constexpr std::string_view name = "q2_k";
  static constexpr int block = 16;
  static constexpr int scale_bytes = 20;  // per group: sixteen bytes, scale in the low four bits and minimum in the
                                          // high ones, float16 d, float16 dmin
  static constexpr float error = 0.45F;   // largest error of encode, in parts of the group's largest magnitude
  static constexpr int zero = 0;

  template <typename Bytes>
  static constexpr Words<2> load_scales(Bytes scales, int i) {
    return {{load_u32(scales + 16), static_cast<uint32_t>(scales[i / 2])}};
  }

  /// Values 8i .. 8i+7 of a group.
  static constexpr Eight decode8(Chunk words, Words<2> scales, int /*i*/) {
    const float d = f16_to_f32(static_cast<uint16_t>(scales.v[0]));
    const float dmin = f16_to_f32(static_cast<uint16_t>(scales.v[0] >> 16));
    const float scale = d * static_cast<float>(scales.v[1] & 15U);
    const float minimum = dmin * static_cast<float>(scales.v[1] >> 4);
    Eight out;
    for (int j = 0; j < 8; ++j) out.v[j] = scale * static_cast<float>(code(words, j)) - minimum;
    return out;
  }

  static void encode(const float* x, std::byte* data, std::byte* scales) {
    const BlockScales<16> found(x, 3, 15);
    for (int b = 0; b < 16; ++b) scales[b] = static_cast<std::byte>(found.scales[b] | found.minima[b] << 4);
    store_u16(scales + 16, f32_to_f16(found.d));
    store_u16(scales + 18, f32_to_f16(found.dmin));
    store(data, [&](int j) { return level(x[j] + found.low(j / block), found.step(j / block), 0, 3); });
  }
};

}  // namespace quern
