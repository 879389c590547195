// 16- and 8-bit floats as bits. Usable by kernels: no library calls.
#pragma once

#include <bit>
#include <cstdint>

namespace quern {

constexpr float f16_to_f32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t magnitude = bits & 0x7FFFU;
  if (magnitude >= 0x7C00U) return std::bit_cast<float>(sign | 0x7F800000U | ((magnitude & 0x3FFU) << 13));
  // Scaling by 2^112 moves the exponent and makes subnormals exact.
  const float value = std::bit_cast<float>(magnitude << 13) * std::bit_cast<float>(0x77800000U);
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

/// Rounds to nearest even; overflow becomes infinity.
constexpr uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return static_cast<uint16_t>(sign | 0x7E00U);
  if (magnitude >= 0x47800000U) return static_cast<uint16_t>(sign | 0x7C00U);
  if (magnitude < 0x38800000U) {  // subnormal: let the adder round
    const float rounded = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) - 0x3F000000U));
  }
  const uint32_t odd = (magnitude >> 13) & 1U;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000U + 0xFFFU + odd) >> 13));
}

constexpr float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

constexpr uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<uint16_t>((bits >> 16) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

/// e4m3: four bits of exponent, three of mantissa, no infinities. The largest is 448.
constexpr float e4m3_to_f32(uint8_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80U) << 24;
  const uint32_t magnitude = bits & 0x7FU;
  if (magnitude == 0x7FU) return std::bit_cast<float>(sign | 0x7FC00000U);
  // Scaling by 2^120 moves the exponent and makes subnormals exact.
  const float value = std::bit_cast<float>(magnitude << 20) * std::bit_cast<float>(0x7B800000U);
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

inline constexpr float e4m3_largest = 448.0F;

/// Rounds to nearest even; what is larger becomes the largest, infinity too.
constexpr uint8_t f32_to_e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 24) & 0x80U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return static_cast<uint8_t>(sign | 0x7FU);
  if (magnitude >= 0x43E00000U) return static_cast<uint8_t>(sign | 0x7EU);
  if (magnitude < 0x3C800000U) {  // subnormal: let the adder round
    const float rounded = std::bit_cast<float>(magnitude) + 16384.0F;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(rounded) - 0x46800000U));
  }
  const uint32_t odd = (magnitude >> 20) & 1U;
  return static_cast<uint8_t>(sign | ((magnitude - 0x3C000000U + 0x7FFFFU + odd) >> 20));
}

}  // namespace quern
