// mxfp4, nvfp4: 4-bit floats (e2m1), which are halves of small integers. mxfp4 has a power of two for each 32 of them,
// nvfp4 an 8-bit float for each 16; a scale of the whole matrix is the matrix's (ops/linear.h).
#pragma once

#include <bit>
#include <cmath>
#include <string_view>

#include "formats/codes.h"
#include "formats/half.h"
#include "formats/round.h"
#include "formats/weight.h"

namespace quern {

/// Twice the values of e2m1.
constexpr Levels e2m1_levels() { return {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}; }

/// 2^(bits - 128): half of what e8m0 says.
constexpr float half_of_e8m0(uint32_t bits) {
  return std::bit_cast<float>(bits < 2 ? 0x00200000U << bits : (bits - 1) << 23);
}

/// Half of what an 8-bit float without sign says: four bits of exponent, three of mantissa, every pattern a number.
constexpr float half_of_ue4m3(uint32_t bits) {
  return std::bit_cast<float>((bits & 0x7FU) << 20) * std::bit_cast<float>(0x7B000000U);  // 2^119
}

struct MXFP4 : Codes<4, 32> {
  static constexpr FormatId id = FormatId::mxfp4;
  static constexpr std::string_view name = "mxfp4";
  static constexpr int scale_bytes = 1;  // per group: e8m0
  static constexpr float error = 0.26F;  // largest error of encode, in parts of the group's largest magnitude
  static constexpr Levels levels() { return e2m1_levels(); }
  static constexpr int level(uint32_t code) {
    constexpr Levels table = levels();
    return table[code];
  }

  template <typename Bytes>
  static constexpr Words<1> load_scales(Bytes scales, int /*i*/) {
    return {{static_cast<uint32_t>(scales[0])}};
  }
  /// Values 8i .. 8i+7 of a group.
  static constexpr Eight decode8(Chunk words, Words<1> scales, int /*i*/) {
    const float scale = half_of_e8m0(scales.v[0]);
    Eight out;
    for (int j = 0; j < 8; ++j) out.v[j] = scale * static_cast<float>(level(code(words, j)));
    return out;
  }
  /// The largest magnitude is from 8 to 16 in units of the scale.
  static void encode(const float* x, std::byte* data, std::byte* scales) {
    const float largest = std::fabs(extreme(x, group));
    const int exponent = largest > 0.0F ? std::ilogb(largest) - 3 : -127;
    const auto bits = static_cast<uint32_t>(exponent < -127 ? 1 : exponent + 128);
    const float scale = half_of_e8m0(bits);
    scales[0] = static_cast<std::byte>(bits);
    store(data, [&](int j) { return nearest_code<MXFP4>(x[j] / scale); });
  }
};

struct NVFP4 : Codes<4, 64> {
  static constexpr FormatId id = FormatId::nvfp4;
  static constexpr std::string_view name = "nvfp4";
  static constexpr int block = 16;
  static constexpr int scale_bytes = 4;  // per group: an 8-bit float without sign for each block
  static constexpr float error = 0.24F;  // where blocks are from 2^-5 to 2000
  static constexpr Levels levels() { return e2m1_levels(); }
  static constexpr int level(uint32_t code) {
    constexpr Levels table = levels();
    return table[code];
  }

  template <typename Bytes>
  static constexpr Words<1> load_scales(Bytes scales, int i) {
    return {{static_cast<uint32_t>(scales[8 * i / block])}};
  }
  /// Values 8i .. 8i+7 of a group.
  static constexpr Eight decode8(Chunk words, Words<1> scales, int /*i*/) {
    const float scale = half_of_ue4m3(scales.v[0]);
    Eight out;
    for (int j = 0; j < 8; ++j) out.v[j] = scale * static_cast<float>(level(code(words, j)));
    return out;
  }
  static void encode(const float* x, std::byte* data, std::byte* scales) {
    float steps[group / block];
    for (int b = 0; b < group / block; ++b) {
      const uint8_t bits = f32_to_e4m3(std::fabs(extreme(x + block * b, block)) / 6.0F);
      scales[b] = static_cast<std::byte>(bits);
      steps[b] = half_of_ue4m3(bits);
    }
    store(data, [&](int j) { return steps[j / block] == 0.0F ? 0U : nearest_code<NVFP4>(x[j] / steps[j / block]); });
  }
};

}  // namespace quern
