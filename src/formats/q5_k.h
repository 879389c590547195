// q5_k: 256 values of 5 bits in eight blocks of 32, each with a scale and a minimum of 6 bits, in units of two float16.
// value = (d * scale) * q - (dmin * minimum)
#pragma once

#include <string_view>

#include "formats/codes.h"
#include "formats/half.h"
#include "formats/round.h"
#include "formats/weight.h"

namespace quern {

struct Q5_K : Codes<5, 256> {
  static constexpr FormatId id = FormatId::q5_k;
  static constexpr std::string_view name = "q5_k";
  static constexpr int scale_bytes = 20;  // per group: float16 d, float16 dmin, eight bytes scale, eight bytes minimum
  static constexpr float error = 0.06F;   // largest error of encode, in parts of the group's largest magnitude
  static constexpr int zero = 0;

  template <typename Bytes>
  static constexpr Words<2> load_scales(Bytes scales, int i) {
    const uint32_t scale = static_cast<uint32_t>(scales[4 + i / 4]);
    return {{load_u32(scales), scale | static_cast<uint32_t>(scales[12 + i / 4]) << 8}};
  }

  /// Values 8i .. 8i+7 of a group.
  static constexpr Eight decode8(Chunk words, Words<2> scales, int /*i*/) {
    const float d = f16_to_f32(static_cast<uint16_t>(scales.v[0]));
    const float dmin = f16_to_f32(static_cast<uint16_t>(scales.v[0] >> 16));
    const float scale = d * static_cast<float>(scales.v[1] & 255U);
    const float minimum = dmin * static_cast<float>(scales.v[1] >> 8);
    Eight out;
    for (int j = 0; j < 8; ++j) out.v[j] = scale * static_cast<float>(code(words, j)) - minimum;
    return out;
  }

  static void encode(const float* x, std::byte* data, std::byte* scales) {
    const BlockScales<8> found(x, 31, 63);
    store_u16(scales, f32_to_f16(found.d));
    store_u16(scales + 2, f32_to_f16(found.dmin));
    for (int b = 0; b < 8; ++b) {
      scales[4 + b] = static_cast<std::byte>(found.scales[b]);
      scales[12 + b] = static_cast<std::byte>(found.minima[b]);
    }
    store(data, [&](int j) { return level(x[j] + found.low(j / 32), found.step(j / 32), 0, 31); });
  }
};

}  // namespace quern
