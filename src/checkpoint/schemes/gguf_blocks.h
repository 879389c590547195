// What the conversions of GGUF blocks share: moving bits of eight values at a time, and how a type is registered.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "checkpoint/source.h"

namespace quern {

static_assert(std::endian::native == std::endian::little, "stored blocks are copied as words");

inline uint64_t load_u64(const std::byte* p) {
  uint64_t value = 0;
  std::memcpy(&value, p, sizeof value);
  return value;
}
inline void put_u64(std::byte* p, uint64_t value) { std::memcpy(p, &value, sizeof value); }
inline void put_u32(std::byte* p, uint64_t value) {
  const auto word = static_cast<uint32_t>(value);
  std::memcpy(p, &word, sizeof word);
}
inline void put_u16(std::byte* p, uint64_t value) {
  const auto half = static_cast<uint16_t>(value);
  std::memcpy(p, &half, sizeof half);
}

/// The low four bits of eight bytes, next to each other.
inline uint64_t pack_nibbles(uint64_t bytes) {
  bytes &= 0x0F0F0F0F0F0F0F0FU;
  bytes = (bytes | bytes >> 4) & 0x00FF00FF00FF00FFU;
  bytes = (bytes | bytes >> 8) & 0x0000FFFF0000FFFFU;
  return (bytes | bytes >> 16) & 0xFFFFFFFFU;
}

/// Exchanges the bits under `mask` with those `distance` above.
constexpr uint64_t exchange(uint64_t x, int distance, uint64_t mask) {
  const uint64_t changed = (x ^ x >> distance) & mask;
  return x ^ changed ^ changed << distance;
}

/// The low two bits of eight bytes, next to each other.
inline uint64_t pack_pairs(uint64_t bytes) {
  bytes &= 0x0303030303030303U;
  bytes = (bytes | bytes >> 6) & 0x000F000F000F000FU;
  bytes = (bytes | bytes >> 12) & 0x000000FF000000FFU;
  return (bytes | bytes >> 24) & 0xFFFFU;
}

/// `count` bytes of two nibbles (a multiple of 8): the low ones become the first half of the words, the high ones the
/// second.
inline void split_nibbles(const std::byte* stored, int count, std::byte* low, std::byte* high) {
  for (int i = 0; i < count; i += 8) {
    const uint64_t bytes = load_u64(stored + i);
    put_u32(low + i / 2, pack_nibbles(bytes));
    put_u32(high + i / 2, pack_nibbles(bytes >> 4));
  }
}

/// 256 values of two bits: each half has four runs of 32 values, run k in bits 2k of 32 bytes.
inline void split_pairs(const std::byte* stored, std::byte* pairs) {
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 4; ++i) {
      // Pair r of byte b goes to place 8 r + b: first inside four bytes, then between them.
      uint64_t x = load_u64(stored + 32 * half + 8 * i);
      x = exchange(x, 6, 0x00CC00CC00CC00CCU);
      x = exchange(x, 12, 0x0000F0F00000F0F0U);
      x = exchange(x, 16, 0x00000000FFFF0000U);
      x = exchange(x, 8, 0x0000FF000000FF00U);
      for (int run = 0; run < 4; ++run) put_u16(pairs + 32 * half + 8 * run + 2 * i, x >> (16 * run));
    }
  }
}

/// 256 values of one bit: run k of 32 values in bit k of 32 bytes.
inline void split_bits(const std::byte* stored, std::byte* bits) {
  for (int i = 0; i < 4; ++i) {
    // Bit r of byte b goes to place 8 r + b.
    uint64_t x = load_u64(stored + 8 * i);
    x = exchange(x, 7, 0x00AA00AA00AA00AAU);
    x = exchange(x, 14, 0x0000CCCC0000CCCCU);
    x = exchange(x, 28, 0x00000000F0F0F0F0U);
    for (int run = 0; run < 8; ++run) bits[4 * run + i] = static_cast<std::byte>(x >> (8 * run));
  }
}

template <typename Format, int BlockValues, int BlockBytes,
          void (*ConvertBlock)(const std::byte*, std::byte*, std::byte*)>
void convert_blocks(const std::byte* stored, int64_t cols, std::byte* data, std::byte* scales) {
  constexpr int groups = BlockValues / Format::group;
  for (int64_t block = 0; block < cols / BlockValues; ++block) {
    ConvertBlock(stored, data, scales);
    stored += BlockBytes;
    data += groups * Format::data_bytes;
    scales += groups * Format::scale_bytes;
  }
}

/// A type whose blocks, of as many bytes, are one or more groups of `Format`.
template <typename Format, int BlockBytes, void (*ConvertBlock)(const std::byte*, std::byte*, std::byte*),
          int BlockValues = Format::group>
bool add_gguf_type(std::string_view stored_type) {
  return register_scheme({stored_type, Format::id, BlockValues, BlockBytes,
                          convert_blocks<Format, BlockValues, BlockBytes, ConvertBlock>});
}

}  // namespace quern
