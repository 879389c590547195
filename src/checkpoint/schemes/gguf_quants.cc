// The quantized types of GGUF files. Their blocks keep values j and j + n/2 in one byte; the runtime formats keep
// values in ascending order and the scales in a plane of their own, so every row is rearranged, bit by bit the same
// values. The types of 1 to 3 bits with a grid are gguf_grid_quants.cc's.
#include <cstring>

#include "checkpoint/schemes/gguf_blocks.h"
#include "formats/list.h"

namespace quern {
namespace {

/// float16 scale, 16 bytes. Of IQ4_NL too.
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

/// float16 scale, float16 minimum, a word of high bits, 16 bytes.
void convert_q5_1(const std::byte* stored, std::byte* data, std::byte* scales) {
  std::memcpy(scales, stored, 4);
  split_nibbles(stored + 8, 16, data, data + 8);
  std::memcpy(data + 16, stored + 4, 4);
}

/// float16 scale, 32 signed bytes.
void convert_q8_0(const std::byte* stored, std::byte* data, std::byte* scales) {
  std::memcpy(scales, stored, 2);
  std::memcpy(data, stored + 2, 32);
}

/// Eight bytes below 64, less 32.
uint64_t minus_32(uint64_t bytes) {
  return ((bytes | 0x8080808080808080U) - 0x2020202020202020U) ^ 0x8080808080808080U;
}

/// float16 d, float16 dmin, 8 scales and 8 minima of 6 bits in 12 bytes.
void unpack_minima(const std::byte* stored, std::byte* scales) {
  std::memcpy(scales, stored, 4);
  const uint32_t first = load_u32(stored + 4);
  const uint32_t second = load_u32(stored + 8);
  const uint32_t third = load_u32(stored + 12);
  put_u32(scales + 4, first & 0x3F3F3F3FU);
  put_u32(scales + 8, (third & 0x0F0F0F0FU) | (first >> 6 & 0x03030303U) << 4);
  put_u32(scales + 12, second & 0x3F3F3F3FU);
  put_u32(scales + 16, (third >> 4 & 0x0F0F0F0FU) | (second >> 6 & 0x03030303U) << 4);
}

/// Scales and minima, then 32 bytes for each pair of blocks.
void convert_q4_k(const std::byte* stored, std::byte* data, std::byte* scales) {
  unpack_minima(stored, scales);
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
  }
  split_pairs(stored + 128, data + 128);
}

/// 16 bytes of scale and minimum, 64 bytes, float16 d, float16 dmin.
void convert_q2_k(const std::byte* stored, std::byte* data, std::byte* scales) {
  std::memcpy(scales, stored, 16);
  std::memcpy(scales + 16, stored + 80, 4);
  split_pairs(stored + 16, data);
}

/// 32 bytes of high bits, 64 bytes, 16 scales of 6 bits in 12 bytes, float16 d. Scales are stored plus 32.
void convert_q3_k(const std::byte* stored, std::byte* data, std::byte* scales) {
  split_pairs(stored + 32, data);
  split_bits(stored, data + 64);
  const uint64_t low = load_u64(stored + 96);
  const uint64_t high = load_u32(stored + 104);
  for (int i = 0; i < 2; ++i) {
    const uint64_t both = (high >> (4 * i) & 0x03030303U) | (high >> (4 * i + 2) & 0x03030303U) << 32;
    const uint64_t six = (low >> (4 * i) & 0x0F0F0F0F0F0F0F0FU) | both << 4;
    const uint64_t eight = minus_32(six);
    std::memcpy(scales + 8 * i, &eight, 8);
  }
  std::memcpy(scales + 16, stored + 108, 2);
}

/// Scales and minima, 32 bytes of high bits, then 32 bytes for each pair of blocks.
void convert_q5_k(const std::byte* stored, std::byte* data, std::byte* scales) {
  unpack_minima(stored, scales);
  for (int pair = 0; pair < 4; ++pair) {
    split_nibbles(stored + 48 + 32 * pair, 32, data + 32 * pair, data + 32 * pair + 16);
  }
  split_bits(stored + 16, data + 128);
}

/// float16 d, a word of the high two bits of eight scales, four bytes of their low four, 16 bytes for each block.
void convert_iq4_xs(const std::byte* stored, std::byte* data, std::byte* scales) {
  const uint32_t high = load_u16(stored + 2);
  uint64_t six = 0;
  for (int b = 0; b < 8; ++b) {
    const uint32_t low = static_cast<uint32_t>(stored[4 + b / 2]) >> (4 * (b % 2)) & 15U;
    six |= uint64_t{low | (high >> (2 * b) & 3U) << 4} << (8 * b);
  }
  const uint64_t eight = minus_32(six);
  std::memcpy(scales, &eight, 8);
  std::memcpy(scales + 8, stored, 2);
  for (int b = 0; b < 8; ++b) split_nibbles(stored + 8 + 16 * b, 16, data + 16 * b, data + 16 * b + 8);
}

/// e8m0, 16 bytes.
void convert_mxfp4(const std::byte* stored, std::byte* data, std::byte* scales) {
  scales[0] = stored[0];
  split_nibbles(stored + 1, 16, data, data + 8);
}

/// Four 8-bit floats, 8 bytes for each block. The one float that is no number counts as 0.
void convert_nvfp4(const std::byte* stored, std::byte* data, std::byte* scales) {
  for (int b = 0; b < 4; ++b) {
    scales[b] = stored[b] == std::byte{0x7F} ? std::byte{0} : stored[b];
    split_nibbles(stored + 4 + 8 * b, 8, data + 8 * b, data + 8 * b + 4);
  }
}

/// float16 scale, 16 bytes of two bits a value, ascending.
void convert_q2_0(const std::byte* stored, std::byte* data, std::byte* scales) {
  std::memcpy(scales, stored, 2);
  std::memcpy(data, stored + 2, 16);
}

/// float16 scale, 16 bytes of one bit a value: 1 or -1.
void convert_q1_0(const std::byte* stored, std::byte* data, std::byte* scales) {
  for (int group = 0; group < 2; ++group) std::memcpy(scales + 2 * group, stored, 2);
  for (int i = 0; i < 16; ++i) {
    auto bits = static_cast<uint32_t>(stored[2 + i]);
    bits = (bits | bits << 4) & 0x0F0FU;
    bits = (bits | bits << 2) & 0x3333U;
    bits = (bits | bits << 1) & 0x5555U;
    put_u16(data + 2 * i, bits << 1);
  }
}

/// 64 bytes, float16 scale.
void convert_tq2_0(const std::byte* stored, std::byte* data, std::byte* scales) {
  split_pairs(stored, data);
  for (int group = 0; group < 4; ++group) std::memcpy(scales + 2 * group, stored + 64, 2);
}

/// `Count` times eight bytes of digits to the base 3, as fractions of 256: digit n of all becomes codes at
/// to + n * stride.
template <int Count>
void split_digits(const std::byte* stored, int digits, int stride, std::byte* to) {
  using Words [[gnu::vector_size(8 * Count)]] = uint64_t;
  constexpr uint64_t bytes = 0x00FF00FF00FF00FFU;
  Words even;
  std::memcpy(&even, stored, sizeof even);
  Words odd = even >> 8 & bytes;
  even &= bytes;
  for (int n = 0; n < digits; ++n, to += stride) {
    even += even << 1;
    odd += odd << 1;
    Words codes = (even >> 8 & 0x0003000300030003U) | (odd >> 6 & 0x000C000C000C000CU);
    codes = (codes | codes >> 12) & 0x000000FF000000FFU;
    codes |= codes >> 24;
    for (int i = 0; i < Count; ++i) put_u16(to + 2 * i, codes[i]);
    even &= bytes;
    odd &= bytes;
  }
}

/// 48 bytes of five values, 4 bytes of four, float16 scale: digit n of 32, then of 16, then of 4 bytes stand together.
void convert_tq1_0(const std::byte* stored, std::byte* data, std::byte* scales) {
  split_digits<4>(stored, 5, 8, data);
  split_digits<2>(stored + 32, 5, 4, data + 40);
  std::byte last[8] = {};
  std::memcpy(last, stored + 48, 4);
  std::byte codes[5];  // a byte each, and one that nobody reads
  split_digits<1>(last, 4, 1, codes);
  std::memcpy(data + 60, codes, 4);
  for (int group = 0; group < 4; ++group) std::memcpy(scales + 2 * group, stored + 52, 2);
}

[[maybe_unused]] const bool added[] = {
    add_gguf_type<Q4_0, 18, convert_q4_0>("Q4_0"),        add_gguf_type<Q4_1, 20, convert_q4_1>("Q4_1"),
    add_gguf_type<Q5_0, 22, convert_q5_0>("Q5_0"),        add_gguf_type<Q5_1, 24, convert_q5_1>("Q5_1"),
    add_gguf_type<Q8_0, 34, convert_q8_0>("Q8_0"),        add_gguf_type<Q2_K, 84, convert_q2_k>("Q2_K"),
    add_gguf_type<Q3_K, 110, convert_q3_k>("Q3_K"),       add_gguf_type<Q4_K, 144, convert_q4_k>("Q4_K"),
    add_gguf_type<Q5_K, 176, convert_q5_k>("Q5_K"),       add_gguf_type<Q6_K, 210, convert_q6_k>("Q6_K"),
    add_gguf_type<IQ4_NL, 18, convert_q4_0>("IQ4_NL"),    add_gguf_type<IQ4_XS, 136, convert_iq4_xs>("IQ4_XS"),
    add_gguf_type<MXFP4, 17, convert_mxfp4>("MXFP4"),     add_gguf_type<NVFP4, 36, convert_nvfp4>("NVFP4"),
    add_gguf_type<Q2_0, 18, convert_q2_0>("Q2_0"),        add_gguf_type<Q2_0, 18, convert_q1_0, 128>("Q1_0"),
    add_gguf_type<Q2_0, 54, convert_tq1_0, 256>("TQ1_0"), add_gguf_type<Q2_0, 66, convert_tq2_0, 256>("TQ2_0"),
};

}  // namespace
}  // namespace quern
