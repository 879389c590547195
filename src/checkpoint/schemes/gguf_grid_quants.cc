// The types of GGUF files that name four or eight values together by their place in a grid, and their signs beside it.
// Values get codes of their own: the number of the magnitude, then the sign (formats/iq.h).
#include <cstring>

#include "checkpoint/schemes/gguf_blocks.h"
#include "checkpoint/schemes/gguf_grids.h"
#include "formats/iq.h"

namespace quern {
namespace {

uint32_t byte_at(const std::byte* p) { return static_cast<uint32_t>(*p); }

/// Scales of these types are odd.
std::byte odd(uint32_t value) { return static_cast<std::byte>(2 * value + 1); }

/// Eight signs of which seven are stored: their number is even.
std::byte signs_of(uint32_t seven) {
  seven &= 127U;
  constexpr uint32_t odd_counts = 0x6996U;  // bit i: whether i has an odd number of bits
  return static_cast<std::byte>(seven | (odd_counts >> ((seven ^ seven >> 4) & 15U) & 1U) << 7);
}

/// Codes of iq2 and iq1: the plane of pairs, then that of the last bits.
constexpr int last_bits = 64;
static_assert(IQ2::low_bytes == last_bits && IQ1::low_bytes == last_bits);

/// float16 d, then for 32 values four places and a word of four times seven signs and a scale.
void convert_iq2_xxs(const std::byte* stored, std::byte* data, std::byte* scales) {
  for (int b = 0; b < 8; ++b) {
    const std::byte* const places = stored + 2 + 8 * b;
    const uint32_t word = load_u32(places + 4);
    scales[2 * b] = scales[2 * b + 1] = odd(word >> 28);
    for (int k = 0; k < 4; ++k) {
      put_u16(data + 8 * b + 2 * k, grids::iq2_xxs[byte_at(places + k)]);
      data[last_bits + 4 * b + k] = signs_of(word >> (7 * k));
    }
  }
  std::memcpy(scales + 16, stored, 2);
}

/// float16 d, 32 words of a place and seven signs, 16 scales of 4 bits.
void convert_iq2_xs(const std::byte* stored, std::byte* data, std::byte* scales) {
  for (int k = 0; k < 32; ++k) {
    const uint32_t word = load_u16(stored + 2 + 2 * k);
    put_u16(data + 2 * k, grids::iq2_xs[word & 511U]);
    data[last_bits + k] = signs_of(word >> 9);
  }
  for (int b = 0; b < 16; ++b) scales[b] = odd(byte_at(stored + 66 + b / 2) >> (4 * (b % 2)) & 15U);
  std::memcpy(scales + 16, stored, 2);
}

/// float16 d, 32 places, 32 bytes of signs, the two high bits of the places, 16 scales of 4 bits.
void convert_iq2_s(const std::byte* stored, std::byte* data, std::byte* scales) {
  for (int k = 0; k < 32; ++k) {
    const uint32_t high = byte_at(stored + 66 + k / 4) >> (2 * (k % 4)) & 3U;
    put_u16(data + 2 * k, grids::iq2_s[byte_at(stored + 2 + k) | high << 8]);
  }
  std::memcpy(data + last_bits, stored + 34, 32);
  for (int b = 0; b < 16; ++b) scales[b] = odd(byte_at(stored + 74 + b / 2) >> (4 * (b % 2)) & 15U);
  std::memcpy(scales + 16, stored, 2);
}

/// Two places of four magnitudes each, with their signs above them.
uint32_t join_iq3(uint32_t first, uint32_t second, std::byte signs) {
  auto bits = static_cast<uint32_t>(signs);
  bits = (bits | bits << 12) & 0x000F000FU;
  bits = (bits | bits << 6) & 0x03030303U;
  bits = (bits | bits << 3) & 0x11111111U;
  return first | second << 16 | bits << 3;
}

/// float16 d, 64 places, then for 32 values a word of four times seven signs and a scale.
void convert_iq3_xxs(const std::byte* stored, std::byte* data, std::byte* scales) {
  for (int b = 0; b < 8; ++b) {
    const std::byte* const places = stored + 2 + 8 * b;
    const uint32_t word = load_u32(stored + 66 + 4 * b);
    scales[b] = odd(word >> 28);
    for (int k = 0; k < 4; ++k) {
      const uint32_t first = grids::iq3_xxs[byte_at(places + 2 * k)];
      const uint32_t second = grids::iq3_xxs[byte_at(places + 2 * k + 1)];
      put_u32(data + 16 * b + 4 * k, join_iq3(first, second, signs_of(word >> (7 * k))));
    }
  }
  std::memcpy(scales + 8, stored, 2);
}

/// float16 d, 64 places, their high bits, 32 bytes of signs, 8 scales of 4 bits.
void convert_iq3_s(const std::byte* stored, std::byte* data, std::byte* scales) {
  for (int k = 0; k < 32; ++k) {
    const uint32_t high = byte_at(stored + 66 + k / 4) >> (2 * (k % 4));
    const uint32_t first = grids::iq3_s[byte_at(stored + 2 + 2 * k) | (high & 1U) << 8];
    const uint32_t second = grids::iq3_s[byte_at(stored + 3 + 2 * k) | (high & 2U) << 7];
    put_u32(data + 4 * k, join_iq3(first, second, stored[74 + k]));
  }
  for (int b = 0; b < 8; ++b) scales[b] = odd(byte_at(stored + 106 + b / 2) >> (4 * (b % 2)) & 15U);
  std::memcpy(scales + 8, stored, 2);
}

/// float16 d, 32 places, then for 32 values a word of the places' three high bits, a scale and whether an eighth is
/// taken away or added.
void convert_iq1_s(const std::byte* stored, std::byte* data, std::byte* scales) {
  for (int b = 0; b < 8; ++b) {
    const uint32_t word = load_u16(stored + 34 + 2 * b);
    scales[2 * b] = scales[2 * b + 1] = odd(word >> 12 & 7U);
    for (int k = 0; k < 4; ++k) {
      const uint32_t high = word >> (3 * k) & 7U;
      put_u16(data + 8 * b + 2 * k, grids::iq1_s[byte_at(stored + 2 + 4 * b + k) | high << 8]);
    }
    put_u32(data + last_bits + 4 * b, (word & 0x8000U) != 0 ? 0xFFFFFFFFU : 0U);
  }
  std::memcpy(scales + 16, stored, 2);
}

/// 32 places, four bits for each (three high ones, and what is done with the eighth), four words of four scales and
/// four bits of a float16 d.
void convert_iq1_m(const std::byte* stored, std::byte* data, std::byte* scales) {
  for (int k = 0; k < 32; ++k) {
    const uint32_t four = byte_at(stored + 32 + k / 2) >> (4 * (k % 2));
    put_u16(data + 2 * k, grids::iq1_s[byte_at(stored + k) | (four & 7U) << 8]);
    data[last_bits + k] = (four & 8U) != 0 ? std::byte{255} : std::byte{0};
  }
  uint32_t d = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t word = load_u16(stored + 48 + 2 * i);
    d |= word >> 12 << (4 * i);
    for (int j = 0; j < 4; ++j) scales[4 * i + j] = odd(word >> (3 * j) & 7U);
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
