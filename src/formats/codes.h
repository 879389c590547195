// Codes: values of 2 to 5 bits as planes, the part that many formats share; and levels, what codes mean to formats that
// look it up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "formats/words.h"

namespace quern {

/// Groups of codes: a plane of the low 4 (of codes of 4 and 5 bits) or 2 bits, value j in bits 4j or 2j of the words,
/// ascending; then, of codes of 3 and 5 bits, a plane of the last bit, that of value j in bit j.
template <int Bits, int Group>
struct Codes {
  static constexpr int group = Group;
  static constexpr int code_bits = Bits;
  static constexpr int low_bits = Bits >= 4 ? 4 : 2;
  static constexpr bool has_last_bit = Bits > low_bits;
  static constexpr int low_bytes = Group * low_bits / 8;
  static constexpr int data_bytes = Group * Bits / 8;
  static constexpr int chunk_words = has_last_bit ? 2 : 1;
  using Chunk = Words<chunk_words>;

  /// `Bytes` is a pointer, or what a device reads aligned memory with.
  template <typename Bytes>
  static constexpr Chunk load8(Bytes data, int i) {
    Chunk words;
    if constexpr (low_bits == 4)
      words.v[0] = load_u32(data + 4 * i);
    else
      words.v[0] = load_u16(data + 2 * i);
    if constexpr (has_last_bit) words.v[1] = static_cast<uint32_t>(data[low_bytes + i]);
    return words;
  }

  /// Of value j of the eight.
  static constexpr uint32_t code(Chunk words, int j) {
    uint32_t code = words.v[0] >> (low_bits * j) & ((1U << low_bits) - 1);
    if constexpr (has_last_bit) code |= (words.v[1] >> j & 1U) << low_bits;
    return code;
  }

  /// Writes the codes code_of(value number) of a group.
  template <typename CodeOf>
  static void store(std::byte* data, CodeOf&& code_of) {
    for (int i = 0; i < Group / 8; ++i) {
      uint32_t low = 0;
      uint32_t last = 0;
      for (int j = 0; j < 8; ++j) {
        const uint32_t code = code_of(8 * i + j);
        low |= (code & ((1U << low_bits) - 1)) << (low_bits * j);
        last |= code >> low_bits << j;
      }
      if constexpr (low_bits == 4)
        store_u32(data + 4 * i, low);
      else
        store_u16(data + 2 * i, low);
      if constexpr (has_last_bit) data[low_bytes + i] = static_cast<std::byte>(last);
    }
  }
};

/// Small integers by code. In two words, so that a device needs no memory for them.
struct Levels {
  uint64_t words[2] = {};

  /// Those of the first codes; the table repeats until there are sixteen.
  constexpr Levels(std::initializer_list<int> values) {
    for (size_t code = 0; code < 16; ++code) {
      const int value = values.begin()[code % values.size()];
      words[code / 8] |= static_cast<uint64_t>(static_cast<uint8_t>(value)) << (8 * (code % 8));
    }
  }
  constexpr int operator[](uint32_t code) const {
    return static_cast<int8_t>((code < 8 ? words[0] : words[1]) >> (8 * (code & 7U)) & 255U);
  }
  /// The code of the least.
  constexpr uint32_t least() const {
    uint32_t best = 0;
    for (uint32_t code = 1; code < 16; ++code) best = (*this)[code] < (*this)[best] ? code : best;
    return best;
  }
};

/// The code whose level is nearest to x, of a format of levels.
template <typename Format>
uint32_t nearest_code(float x) {
  const auto distance = [&](uint32_t code) {
    const float difference = x - static_cast<float>(Format::level(code));
    return difference < 0 ? -difference : difference;
  };
  uint32_t best = 0;
  for (uint32_t code = 1; code < 1U << Format::code_bits; ++code) best = distance(code) < distance(best) ? code : best;
  return best;
}

/// The level of largest magnitude.
template <typename Format>
float extreme_level() {
  int best = 0;
  for (uint32_t code = 0; code < 1U << Format::code_bits; ++code) {
    const int level = Format::level(code);
    if (level * level > best * best) best = level;
  }
  return static_cast<float>(best);
}

}  // namespace quern
