// The types of GGUF files that name four or eight values together by their place in a grid, and their signs beside it.
// Values get codes of their own: the number of the magnitude, then the sign (formats/iq.h).
#include <cstring>

#include "checkpoint/schemes/gguf_blocks.h"
#include "checkpoint/schemes/gguf_grids.h"
#include "formats/iq.h"

namespace quern {
namespace {

/// The entries of a grid at four places, the first in the low bits.
template <typename PlaceOf>
uint64_t four_of(const uint16_t* grid, PlaceOf&& place_of) {
  uint64_t entries = 0;
  for (int k = 0; k < 4; ++k) entries |= uint64_t{grid[place_of(k)]} << (16 * k);
  return entries;
}

/// Four fields of seven bits as bytes.
uint32_t sevens_of(uint32_t word) {
  return (word & 0x7FU) | (word & 0x3F80U) << 1 | (word & 0x1FC000U) << 2 | (word & 0xFE00000U) << 3;
}

/// Four times eight signs of which seven each are stored: their number is even.
uint32_t signs_of(uint32_t sevens) {
  uint32_t odd = sevens ^ sevens >> 4;
  odd ^= odd >> 2;
  odd ^= odd >> 1;
  return sevens | (odd & 0x01010101U) << 7;
}

/// Four nibbles as bytes.
uint32_t spread_nibbles(uint32_t nibbles) {
  nibbles = (nibbles | nibbles << 8) & 0x00FF00FFU;
  return (nibbles | nibbles << 4) & 0x0F0F0F0FU;
}

/// Scales of these types are odd: twice the bytes and one.
uint32_t odd(uint32_t bytes) { return bytes << 1 | 0x01010101U; }

/// `count` nibbles, a multiple of four.
void odd_nibbles(const std::byte* stored, int count, std::byte* scales) {
  for (int i = 0; i < count; i += 4) put_u32(scales + i, odd(spread_nibbles(load_u16(stored + i / 2))));
}

/// Codes of iq2 and iq1: the plane of pairs, then that of the last bits.
constexpr int last_bits = 64;
static_assert(IQ2::low_bytes == last_bits && IQ1::low_bytes == last_bits);

/// float16 d, then for 32 values four places and a word of four times seven signs and a scale.
void convert_iq2_xxs(const std::byte* stored, std::byte* data, std::byte* scales) {
  for (int b = 0; b < 8; ++b) {
    const uint32_t places = load_u32(stored + 2 + 8 * b);
    const uint32_t word = load_u32(stored + 6 + 8 * b);
    put_u64(data + 8 * b, four_of(grids::iq2_xxs, [&](int k) { return places >> (8 * k) & 255U; }));
    put_u32(data + last_bits + 4 * b, signs_of(sevens_of(word)));
    put_u16(scales + 2 * b, odd((word >> 28) * 0x0101U));
  }
  std::memcpy(scales + 16, stored, 2);
}

/// float16 d, 32 words of a place and seven signs, 16 scales of 4 bits.
void convert_iq2_xs(const std::byte* stored, std::byte* data, std::byte* scales) {
  for (int b = 0; b < 8; ++b) {
    const uint64_t words = load_u64(stored + 2 + 8 * b);
    put_u64(data + 8 * b, four_of(grids::iq2_xs, [&](int k) { return words >> (16 * k) & 511U; }));
    uint64_t sevens = words >> 9 & 0x007F007F007F007FU;
    sevens = (sevens | sevens >> 8) & 0x0000FFFF0000FFFFU;
    put_u32(data + last_bits + 4 * b, signs_of(static_cast<uint32_t>(sevens | sevens >> 16)));
  }
  odd_nibbles(stored + 66, 16, scales);
  std::memcpy(scales + 16, stored, 2);
}

/// float16 d, 32 places, 32 bytes of signs, the two high bits of the places, 16 scales of 4 bits.
void convert_iq2_s(const std::byte* stored, std::byte* data, std::byte* scales) {
  for (int b = 0; b < 8; ++b) {
    const uint32_t places = load_u32(stored + 2 + 4 * b);
    const auto high = static_cast<uint32_t>(stored[66 + b]);
    put_u64(data + 8 * b,
            four_of(grids::iq2_s, [&](int k) { return (places >> (8 * k) & 255U) | (high >> (2 * k) & 3U) << 8; }));
  }
  std::memcpy(data + last_bits, stored + 34, 32);
  odd_nibbles(stored + 74, 16, scales);
  std::memcpy(scales + 16, stored, 2);
}

/// Eight signs above magnitudes of three bits.
struct SignsAbove {
  uint32_t of[256] = {};

  constexpr SignsAbove() {
    for (uint32_t signs = 0; signs < 256; ++signs) {
      for (int i = 0; i < 8; ++i) of[signs] |= (signs >> i & 1U) << (4 * i + 3);
    }
  }
};

uint64_t signs_above(uint32_t sixteen) {
  static constexpr SignsAbove above;
  return above.of[sixteen & 255U] | uint64_t{above.of[sixteen >> 8]} << 32;
}

/// float16 d, 64 places, then for 32 values a word of four times seven signs and a scale.
void convert_iq3_xxs(const std::byte* stored, std::byte* data, std::byte* scales) {
  for (int b = 0; b < 8; ++b) {
    const uint64_t places = load_u64(stored + 2 + 8 * b);
    const uint32_t word = load_u32(stored + 66 + 4 * b);
    const uint32_t signs = signs_of(sevens_of(word));
    for (int i = 0; i < 2; ++i) {
      const uint64_t codes = four_of(grids::iq3_xxs, [&](int k) { return places >> (32 * i + 8 * k) & 255U; });
      put_u64(data + 16 * b + 8 * i, codes | signs_above(signs >> (16 * i) & 0xFFFFU));
    }
    scales[b] = static_cast<std::byte>(odd(word >> 28));
  }
  std::memcpy(scales + 8, stored, 2);
}

/// float16 d, 64 places, their high bits, 32 bytes of signs, 8 scales of 4 bits.
void convert_iq3_s(const std::byte* stored, std::byte* data, std::byte* scales) {
  for (int i = 0; i < 16; ++i) {
    const uint32_t places = load_u32(stored + 2 + 4 * i);
    const uint32_t high = static_cast<uint32_t>(stored[66 + i / 2]) >> (4 * (i % 2));
    const uint64_t codes =
        four_of(grids::iq3_s, [&](int k) { return (places >> (8 * k) & 255U) | (high >> k & 1U) << 8; });
    put_u64(data + 8 * i, codes | signs_above(load_u16(stored + 74 + 2 * i)));
  }
  odd_nibbles(stored + 106, 8, scales);
  std::memcpy(scales + 8, stored, 2);
}

/// float16 d, 32 places, then for 32 values a word of the places' three high bits, a scale and whether an eighth is
/// taken away or added.
void convert_iq1_s(const std::byte* stored, std::byte* data, std::byte* scales) {
  for (int b = 0; b < 8; ++b) {
    const uint32_t places = load_u32(stored + 2 + 4 * b);
    const uint32_t word = load_u16(stored + 34 + 2 * b);
    put_u64(data + 8 * b,
            four_of(grids::iq1_s, [&](int k) { return (places >> (8 * k) & 255U) | (word >> (3 * k) & 7U) << 8; }));
    put_u32(data + last_bits + 4 * b, (word & 0x8000U) != 0 ? 0xFFFFFFFFU : 0U);
    put_u16(scales + 2 * b, odd((word >> 12 & 7U) * 0x0101U));
  }
  std::memcpy(scales + 16, stored, 2);
}

/// 32 places, four bits for each (three high ones, and what is done with the eighth), four words of four scales and
/// four bits of a float16 d.
void convert_iq1_m(const std::byte* stored, std::byte* data, std::byte* scales) {
  for (int b = 0; b < 8; ++b) {
    const uint32_t places = load_u32(stored + 4 * b);
    const uint32_t fours = load_u16(stored + 32 + 2 * b);
    put_u64(data + 8 * b,
            four_of(grids::iq1_s, [&](int k) { return (places >> (8 * k) & 255U) | (fours >> (4 * k) & 7U) << 8; }));
    put_u32(data + last_bits + 4 * b, (spread_nibbles(fours) >> 3 & 0x01010101U) * 255U);
  }
  uint32_t d = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t word = load_u16(stored + 48 + 2 * i);
    d |= word >> 12 << (4 * i);
    put_u32(scales + 4 * i, odd((word & 7U) | (word & 0x38U) << 5 | (word & 0x1C0U) << 10 | (word & 0xE00U) << 15));
  }
  put_u16(scales + 16, d);
}

[[maybe_unused]] const bool added[] = {
    add_gguf_type<IQ2, 66, convert_iq2_xxs>("IQ2_XXS"), add_gguf_type<IQ2, 74, convert_iq2_xs>("IQ2_XS"),
    add_gguf_type<IQ2, 82, convert_iq2_s>("IQ2_S"),     add_gguf_type<IQ3_XXS, 98, convert_iq3_xxs>("IQ3_XXS"),
    add_gguf_type<IQ3_S, 110, convert_iq3_s>("IQ3_S"),  add_gguf_type<IQ1, 50, convert_iq1_s>("IQ1_S"),
    add_gguf_type<IQ1, 56, convert_iq1_m>("IQ1_M"),
};

}  // namespace
}  // namespace quern
