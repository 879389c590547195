// q6_k: 256 values of 6 bits in sixteen blocks of 16, each with a signed scale of 8 bits, in units of one float16.
// value = (d * scale) * (q - 32)
#pragma once

#include <algorithm>
#include <cmath>
#include <string_view>

#include "formats/half.h"
#include "formats/round.h"
#include "formats/weight.h"
#include "formats/words.h"

namespace quern {

struct Q6_K {
  static constexpr FormatId id = FormatId::q6_k;
  static constexpr std::string_view name = "q6_k";
  static constexpr int group = 256;
  static constexpr int data_bytes = 192;  // per group: low 4 bits in 32 words as q4_k, then the high 2 bits of 8 values
                                          // in each of 32 half words, value j in bits 2j
  static constexpr int scale_bytes = 20;  // per group: sixteen signed bytes scale, float16 d, two bytes zero
  static constexpr int chunk_words = 2;
  static constexpr float error = 0.04F;  // largest error of encode, in parts of the group's largest magnitude

  static constexpr Words<2> load8(const std::byte* data, int i) {
    return {{load_u32(data + 4 * i), load_u16(data + 128 + 2 * i)}};
  }
  static constexpr Words<5> load_scales(const std::byte* scales, int /*i*/) {
    Words<5> words;
    for (int j = 0; j < 5; ++j) words.v[j] = load_u32(scales + 4 * j);
    return words;
  }

  /// Values 8i .. 8i+7 of a group.
  static constexpr Eight decode8(Words<2> words, Words<5> scales, int i) {
    const int block = i / 2;
    const float d = f16_to_f32(static_cast<uint16_t>(scales.v[4]));
    const float scale = d * static_cast<float>(static_cast<int8_t>(scales.v[block / 4] >> (8 * (block % 4)) & 255U));
    Eight out;
    for (int j = 0; j < 8; ++j) {
      const uint32_t q = (words.v[0] >> (4 * j) & 15U) | (words.v[1] >> (2 * j) & 3U) << 4;
      out.v[j] = scale * static_cast<float>(static_cast<int>(q) - 32);
    }
    return out;
  }

  static void encode(const float* x, std::byte* data, std::byte* scales) {
    float steps[16];
    for (int block = 0; block < 16; ++block) steps[block] = extreme(x + 16 * block, 16) / -32.0F;
    const float d = through_f16(std::fabs(extreme(steps, 16)) / 127.0F);
    store_u32(scales + 16, f32_to_f16(d));
    for (int block = 0; block < 16; ++block) {
      const int scale = static_cast<int>(level(steps[block], d, 128, 255)) - 128;
      scales[block] = static_cast<std::byte>(scale & 255);
      const float step = d * static_cast<float>(scale);
      for (int i = 2 * block; i < 2 * block + 2; ++i) encode8(x + 8 * i, step, data + 4 * i, data + 128 + 2 * i);
    }
  }

 private:
  static void encode8(const float* x, float step, std::byte* low, std::byte* high) {
    uint32_t low_bits = 0;
    uint32_t high_bits = 0;
    for (int j = 0; j < 8; ++j) {
      const uint32_t q = level(x[j], step, 32, 63);
      low_bits |= (q & 15U) << (4 * j);
      high_bits |= q >> 4 << (2 * j);
    }
    store_u32(low, low_bits);
    store_u16(high, high_bits);
  }
};

}  // namespace quern
