// q4_k: 256 values of 4 bits in eight blocks of 32, each with a scale and a minimum of 6 bits, in units of two float16.
// value = (d * scale) * q - (dmin * minimum)
#pragma once

#include <string_view>

#include "formats/half.h"
#include "formats/round.h"
#include "formats/weight.h"
#include "formats/words.h"

namespace quern {

struct Q4_K {
  static constexpr FormatId id = FormatId::q4_k;
  static constexpr std::string_view name = "q4_k";
  static constexpr int group = 256;
  static constexpr int data_bytes = 128;  // per group: value j in bits 4j of the words, ascending
  static constexpr int scale_bytes = 20;  // per group: float16 d, float16 dmin, eight bytes scale, eight bytes minimum
  static constexpr int chunk_words = 1;
  static constexpr float error = 0.1F;  // largest error of encode, in parts of the group's largest magnitude

  static constexpr Words<1> load8(const std::byte* data, int i) { return {{load_u32(data + 4 * i)}}; }
  static constexpr Words<5> load_scales(const std::byte* scales, int /*i*/) {
    Words<5> words;
    for (int j = 0; j < 5; ++j) words.v[j] = load_u32(scales + 4 * j);
    return words;
  }

  /// Values 8i .. 8i+7 of a group.
  static constexpr Eight decode8(Words<1> words, Words<5> scales, int i) {
    const int block = i / 4;
    const int shift = 8 * (block % 4);
    const float d = f16_to_f32(static_cast<uint16_t>(scales.v[0]));
    const float dmin = f16_to_f32(static_cast<uint16_t>(scales.v[0] >> 16));
    const float scale = d * static_cast<float>(scales.v[1 + block / 4] >> shift & 255U);
    const float minimum = dmin * static_cast<float>(scales.v[3 + block / 4] >> shift & 255U);
    Eight out;
    for (int j = 0; j < 8; ++j) out.v[j] = scale * static_cast<float>(words.v[0] >> (4 * j) & 15U) - minimum;
    return out;
  }

  static void encode(const float* x, std::byte* data, std::byte* scales) {
    const BlockScales<8> found(x, 15, 63);
    store_u16(scales, f32_to_f16(found.d));
    store_u16(scales + 2, f32_to_f16(found.dmin));
    for (int block = 0; block < 8; ++block) {
      scales[4 + block] = static_cast<std::byte>(found.scales[block]);
      scales[12 + block] = static_cast<std::byte>(found.minima[block]);
      encode_block(x + 32 * block, found.step(block), found.low(block), data + 16 * block);
    }
  }

 private:
  static void encode_block(const float* x, float step, float minimum, std::byte* data) {
    for (int i = 0; i < 4; ++i) {
      uint32_t word = 0;
      for (int j = 0; j < 8; ++j) word |= level(x[8 * i + j] + minimum, step, 0, 15) << (4 * j);
      store_u32(data + 4 * i, word);
    }
  }
};

}  // namespace quern
