// The quantized types of GGUF files. Their blocks keep values j and j + n/2 in one byte; the runtime formats keep
// values in ascending order and the scales in a plane of their own, so every row is rearranged, bit by bit the same
// values.
#include <bit>
#include <cstring>

#include "checkpoint/source.h"
#include "formats/q4_0.h"
#include "formats/q4_1.h"
#include "formats/q4_k.h"
#include "formats/q5_0.h"
#include "formats/q6_k.h"
#include "formats/q8_0.h"

namespace quern {
namespace {

static_assert(std::endian::native == std::endian::little, "stored blocks are copied as words");

uint64_t load_u64(const std::byte* p) {
  uint64_t value = 0;
  std::memcpy(&value, p, sizeof value);
  return value;
}
void put_u32(std::byte* p, uint64_t value) {
  const auto word = static_cast<uint32_t>(value);
  std::memcpy(p, &word, sizeof word);
}
void put_u16(std::byte* p, uint64_t value) {
  const auto half = static_cast<uint16_t>(value);
  std::memcpy(p, &half, sizeof half);
}

/// The low four bits of eight bytes, next to each other.
uint64_t pack_nibbles(uint64_t bytes) {
  bytes &= 0x0F0F0F0F0F0F0F0FU;
  bytes = (bytes | bytes >> 4) & 0x00FF00FF00FF00FFU;
  bytes = (bytes | bytes >> 8) & 0x0000FFFF0000FFFFU;
  return (bytes | bytes >> 16) & 0xFFFFFFFFU;
}

/// The low two bits of eight bytes, next to each other.
uint64_t pack_pairs(uint64_t bytes) {
  bytes &= 0x0303030303030303U;
  bytes = (bytes | bytes >> 6) & 0x000F000F000F000FU;
  bytes = (bytes | bytes >> 12) & 0x000000FF000000FFU;
  return (bytes | bytes >> 24) & 0xFFFFU;
}

/// `count` bytes of two nibbles (a multiple of 8): the low ones become the first half of the words, the high ones the
/// second.
void split_nibbles(const std::byte* stored, int count, std::byte* low, std::byte* high) {
  for (int i = 0; i < count; i += 8) {
    const uint64_t bytes = load_u64(stored + i);
    put_u32(low + i / 2, pack_nibbles(bytes));
    put_u32(high + i / 2, pack_nibbles(bytes >> 4));
  }
}

/// float16 scale, 16 bytes.
void convert_q4_0(const std::byte* stored, std::byte* data, std::byte* scales) {
  std::memcpy(scales, stored, 2);
  split_nibbles(stored + 2, 16, data, data + 8);
}

/// float16 scale, float16 minimum, 16 bytes.
void convert_q4_1(const std::byte* stored, std::byte* data, std::byte* scales) {
  std::memcpy(scales, stored, 4);
  split_nibbles(stored + 4, 16, data, data + 8);
}

/// float16 scale, a word of high bits, 16 bytes.
void convert_q5_0(const std::byte* stored, std::byte* data, std::byte* scales) {
  std::memcpy(scales, stored, 2);
  split_nibbles(stored + 6, 16, data, data + 8);
  std::memcpy(data + 16, stored + 2, 4);
}

/// float16 scale, 32 signed bytes.
void convert_q8_0(const std::byte* stored, std::byte* data, std::byte* scales) {
  std::memcpy(scales, stored, 2);
  std::memcpy(data, stored + 2, 32);
}

/// float16 d, float16 dmin, 8 scales and 8 minima of 6 bits in 12 bytes, then 32 bytes for each pair of blocks.
void convert_q4_k(const std::byte* stored, std::byte* data, std::byte* scales) {
  std::memcpy(scales, stored, 4);
  const uint32_t first = load_u32(stored + 4);
  const uint32_t second = load_u32(stored + 8);
  const uint32_t third = load_u32(stored + 12);
  put_u32(scales + 4, first & 0x3F3F3F3FU);
  put_u32(scales + 8, (third & 0x0F0F0F0FU) | (first >> 6 & 0x03030303U) << 4);
  put_u32(scales + 12, second & 0x3F3F3F3FU);
  put_u32(scales + 16, (third >> 4 & 0x0F0F0F0FU) | (second >> 6 & 0x03030303U) << 4);
  for (int pair = 0; pair < 4; ++pair) {
    split_nibbles(stored + 16 + 32 * pair, 32, data + 32 * pair, data + 32 * pair + 16);
  }
}

/// 128 bytes of low bits, 64 bytes of high bits, 16 signed scales, float16 d. Each half of the block has four runs of
/// 32 values: runs 0 and 2 in the nibbles of the first 32 bytes, 1 and 3 in those of the next; run k in bits 2k of the
/// high bits.
void convert_q6_k(const std::byte* stored, std::byte* data, std::byte* scales) {
  std::memcpy(scales, stored + 192, 18);
  put_u16(scales + 18, 0);
  for (int half = 0; half < 2; ++half) {
    const std::byte* low = stored + 64 * half;
    std::byte* words = data + 64 * half;
    split_nibbles(low, 32, words, words + 32);
    split_nibbles(low + 32, 32, words + 16, words + 48);
    for (int i = 0; i < 4; ++i) {
      const uint64_t high = load_u64(stored + 128 + 32 * half + 8 * i);
      for (int run = 0; run < 4; ++run) {
        put_u16(data + 128 + 32 * half + 8 * run + 2 * i, pack_pairs(high >> (2 * run)));
      }
    }
  }
}

template <typename Format, int64_t BlockBytes, void (*ConvertBlock)(const std::byte*, std::byte*, std::byte*)>
void convert_row(const std::byte* stored, int64_t cols, std::byte* data, std::byte* scales) {
  for (int64_t block = 0; block < cols / Format::group; ++block) {
    ConvertBlock(stored, data, scales);
    stored += BlockBytes;
    data += Format::data_bytes;
    scales += Format::scale_bytes;
  }
}

template <typename Format, int64_t BlockBytes, void (*ConvertBlock)(const std::byte*, std::byte*, std::byte*)>
bool add(std::string_view stored_type) {
  return register_scheme(
      {stored_type, Format::id, Format::group, BlockBytes, convert_row<Format, BlockBytes, ConvertBlock>});
}

[[maybe_unused]] const bool q4_0 = add<Q4_0, 18, convert_q4_0>("Q4_0");
[[maybe_unused]] const bool q4_1 = add<Q4_1, 20, convert_q4_1>("Q4_1");
[[maybe_unused]] const bool q5_0 = add<Q5_0, 22, convert_q5_0>("Q5_0");
[[maybe_unused]] const bool q8_0 = add<Q8_0, 34, convert_q8_0>("Q8_0");
[[maybe_unused]] const bool q4_k = add<Q4_K, 144, convert_q4_k>("Q4_K");
[[maybe_unused]] const bool q6_k = add<Q6_K, 210, convert_q6_k>("Q6_K");

}  // namespace
}  // namespace quern
