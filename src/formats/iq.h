// iq4_nl, iq4_xs, iq3_xxs, iq3_s, iq2, iq1: codes that stand for levels at uneven distances. The stored types of 1 to 3
// bits name eight or four values together by their place in a grid; here every value has a code of its own, its
// magnitude and then its sign, so that no kernel needs the grids.
#pragma once

#include <string_view>

#include "formats/scaled_codes.h"
#include "formats/weight.h"

namespace quern {

struct IQ4_XS : ScaledCodes<IQ4_XS, 4, 32> {
  static constexpr FormatId id = FormatId::iq4_xs;
  static constexpr std::string_view name = "iq4_xs";
  static constexpr float error = 0.13F;  // largest error of encode, in parts of the group's largest magnitude
  static constexpr float unit = 1.0F;
  static constexpr Levels levels() {
    return {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  }
  static constexpr int level(uint32_t code) {
    constexpr Levels table = levels();
    return table[code];
  }
};

/// The levels of iq4_xs; 32 values with a float16 scale.
struct IQ4_NL : Codes<4, 32> {
  static constexpr FormatId id = FormatId::iq4_nl;
  static constexpr std::string_view name = "iq4_nl";
  static constexpr int scale_bytes = 2;  // per group: float16 scale
  static constexpr float error = 0.12F;
  static constexpr Levels levels() { return IQ4_XS::levels(); }
  static constexpr int level(uint32_t code) {
    constexpr Levels table = levels();
    return table[code];
  }

  template <typename Bytes>
  static constexpr Words<1> load_scales(Bytes scales, int /*i*/) {
    return {{load_u16(scales)}};
  }
  static constexpr Eight decode8(Chunk words, Words<1> scales, int /*i*/) {
    const float scale = f16_to_f32(static_cast<uint16_t>(scales.v[0]));
    Eight out;
    for (int j = 0; j < 8; ++j) out.v[j] = scale * static_cast<float>(level(code(words, j)));
    return out;
  }
  static void encode(const float* x, std::byte* data, std::byte* scales) {
    const float scale = through_f16(extreme(x, group) / extreme_level<IQ4_NL>());
    store_u16(scales, f32_to_f16(scale));
    store(data, [&](int j) { return scale == 0.0F ? 0U : nearest_code<IQ4_NL>(x[j] / scale); });
  }
};

struct IQ3_XXS : ScaledCodes<IQ3_XXS, 4, 32> {
  static constexpr FormatId id = FormatId::iq3_xxs;
  static constexpr std::string_view name = "iq3_xxs";
  static constexpr float error = 0.09F;
  static constexpr float unit = 0.25F;
  static constexpr Levels levels() { return {4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62}; }
  static constexpr int level(uint32_t code) {
    constexpr Levels table = levels();
    return table[code];
  }
};

struct IQ3_S : ScaledCodes<IQ3_S, 4, 32> {
  static constexpr FormatId id = FormatId::iq3_s;
  static constexpr std::string_view name = "iq3_s";
  static constexpr float error = 0.08F;
  static constexpr float unit = 1.0F;
  static constexpr Levels levels() { return {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15}; }
  static constexpr int level(uint32_t code) {
    constexpr Levels table = levels();
    return table[code];
  }
};

/// Of the stored types IQ2_XXS, IQ2_XS and IQ2_S.
struct IQ2 : ScaledCodes<IQ2, 3, 16> {
  static constexpr FormatId id = FormatId::iq2;
  static constexpr std::string_view name = "iq2";
  static constexpr float error = 0.22F;
  static constexpr float unit = 0.125F;
  static constexpr Levels levels() { return {8, 25, 43, 43, -8, -25, -43, -43}; }
  static constexpr int level(uint32_t code) {
    constexpr Levels table = levels();
    return table[code];
  }
};

/// Of the stored types IQ1_S and IQ1_M: -8, 0 or 8, and one more or less.
struct IQ1 : ScaledCodes<IQ1, 3, 16> {
  static constexpr FormatId id = FormatId::iq1;
  static constexpr std::string_view name = "iq1";
  static constexpr float error = 0.35F;
  static constexpr float unit = 0.125F;
  static constexpr Levels levels() { return {-7, 1, 9, 9, -9, -1, 7, 7}; }
  static constexpr int level(uint32_t code) {
    constexpr Levels table = levels();
    return table[code];
  }
};

}  // namespace quern
