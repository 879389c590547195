// What formats share whose groups of 256 codes have blocks with a signed scale of 8 bits, in units of one float16.
// value = (unit * d * scale) * level
#pragma once

#include <cmath>

#include "formats/codes.h"
#include "formats/half.h"
#include "formats/round.h"

namespace quern {

/// `Format` has `unit` and `level(code)`.
template <typename Format, int Bits, int Block>
struct ScaledCodes : Codes<Bits, 256> {
  static constexpr int block = Block;
  static constexpr int blocks = 256 / Block;
  static constexpr int scale_bytes = blocks + 2;  // per group: a signed byte for each block, float16 d
  using typename Codes<Bits, 256>::Chunk;

  template <typename Bytes>
  static constexpr Words<1> load_scales(Bytes scales, int i) {
    return {{static_cast<uint32_t>(scales[8 * i / Block]) | load_u16(scales + blocks) << 16}};
  }

  /// Values 8i .. 8i+7 of a group.
  static constexpr Eight decode8(Chunk words, Words<1> scales, int /*i*/) {
    const float d = Format::unit * f16_to_f32(static_cast<uint16_t>(scales.v[0] >> 16));
    const float scale = d * static_cast<float>(static_cast<int8_t>(scales.v[0] & 255U));
    Eight out;
    for (int j = 0; j < 8; ++j) out.v[j] = scale * static_cast<float>(Format::level(Format::code(words, j)));
    return out;
  }

  /// The value of largest magnitude of a block becomes the level that is largest so.
  static void encode(const float* x, std::byte* data, std::byte* scales) {
    float steps[blocks];
    for (int b = 0; b < blocks; ++b) steps[b] = extreme(x + Block * b, Block) / extreme_level<Format>();
    const uint16_t stored_d = f32_to_f16(std::fabs(extreme(steps, blocks)) / 127.0F / Format::unit);
    const float d = Format::unit * f16_to_f32(stored_d);
    store_u16(scales + blocks, stored_d);
    for (int b = 0; b < blocks; ++b) {
      const int scale = static_cast<int>(level(steps[b], d, 128, 255)) - 128;
      scales[b] = static_cast<std::byte>(scale & 255);
      steps[b] = d * static_cast<float>(scale);
    }
    Format::store(data, [&](int j) {
      const float step = steps[j / Block];
      return step == 0.0F ? 0U : nearest_code<Format>(x[j] / step);
    });
  }
};

}  // namespace quern
