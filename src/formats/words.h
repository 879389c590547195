// The values that a format's decode8 takes and gives. No pointers, so that one text serves host and device.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quern {

template <int N>
struct Words {
  uint32_t v[N > 0 ? N : 1];
};

struct Eight {
  float v[8];
};

/// Little-endian loads from memory of any alignment.
constexpr uint32_t load_u32(const std::byte* p) {
  return static_cast<uint32_t>(p[0]) | static_cast<uint32_t>(p[1]) << 8 | static_cast<uint32_t>(p[2]) << 16 |
         static_cast<uint32_t>(p[3]) << 24;
}
constexpr uint32_t load_u16(const std::byte* p) {
  return static_cast<uint32_t>(p[0]) | static_cast<uint32_t>(p[1]) << 8;
}

constexpr void store_u16(std::byte* p, uint32_t value) {
  p[0] = static_cast<std::byte>(value & 255U);
  p[1] = static_cast<std::byte>(value >> 8 & 255U);
}
constexpr void store_u32(std::byte* p, uint32_t value) {
  store_u16(p, value);
  store_u16(p + 2, value >> 16);
}

}  // namespace quern
