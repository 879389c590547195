// What is wrong in the scales that blocks of weights carry with them, as a damaged or badly converted file has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "formats/list.h"
#include "formats/words.h"

namespace quern {
namespace scales {

/// Where the float16 of a group's scales are: so many bytes from this one on.
struct HalfPlaces {
  int first = 0;
  int bytes = 0;
};

constexpr HalfPlaces half_places(FormatId format, int scale_bytes) {
  switch (format) {
    case FormatId::q4_0:
    case FormatId::q5_0:
    case FormatId::q8_0:
    case FormatId::q2_0:
    case FormatId::iq4_nl: return {0, 2};
    case FormatId::q4_1:
    case FormatId::q5_1:
    case FormatId::q4_k:
    case FormatId::q5_k: return {0, 4};
    case FormatId::q2_k: return {16, 4};
    case FormatId::q6_k: return {16, 2};
    case FormatId::q3_k:
    case FormatId::iq4_xs:
    case FormatId::iq3_xxs:
    case FormatId::iq3_s:
    case FormatId::iq2:
    case FormatId::iq1: return {scale_bytes - 2, 2};
    default: return {};
  }
}

/// Bits that are not zero where one of four float16 is not finite: an exponent of ones runs over into the sign's place.
constexpr uint64_t broken_halves(uint64_t four) {
  return ((four & 0x7C007C007C007C00U) + 0x0400040004000400U) & 0x8000800080008000U;
}

inline uint64_t four_halves(const std::byte* halves) { return load_u32(halves) | uint64_t{load_u32(halves + 4)} << 32; }

/// Any number of float16, one after the other.
inline bool any_broken_half(const std::byte* halves, int64_t bytes) {
  uint64_t broken = 0;
  int64_t i = 0;
  for (; i + 8 <= bytes; i += 8) broken |= broken_halves(four_halves(halves + i));
  for (; i < bytes; i += 2) broken |= broken_halves(load_u16(halves + i));
  return broken != 0;
}

template <typename Format>
bool any_broken(const std::byte* scales, int64_t groups) {
  constexpr HalfPlaces places = half_places(Format::id, Format::scale_bytes);
  constexpr int stride = Format::scale_bytes;
  if constexpr (Format::id == FormatId::mxfp4) {
    return std::memchr(scales, 0xFF, static_cast<size_t>(groups)) != nullptr;
  } else if constexpr (places.bytes == 0) {
    return false;
  } else if constexpr (places.bytes == stride) {
    return any_broken_half(scales, groups * stride);
  } else {
    uint64_t broken = 0;
    for (int64_t g = 0; g < groups; ++g) {
      const std::byte* const halves = scales + g * stride + places.first;
      broken |= broken_halves(places.bytes == 4 ? load_u32(halves) : load_u16(halves));
    }
    return broken != 0;
  }
}

}  // namespace scales

/// The first of `values` values whose group has a float16 scale that is infinite or no number, or the one e8m0 that is
/// no number; -1 where there is none. Formats without such scales have none. `plane`: the scales of Layout::rows.
inline int64_t first_broken_value(FormatId format, const std::byte* plane, int64_t values) {
  int64_t found = -1;
  visit_format(format, [&]<typename Format>(Format) {
    if (!scales::any_broken<Format>(plane, values / Format::group)) return;
    int64_t group = 0;
    while (!scales::any_broken<Format>(plane + group * Format::scale_bytes, 1)) ++group;
    found = group * Format::group;
  });
  return found;
}

}  // namespace quern
