// Packed weights in GPU memory. Floats lie row by row, a panel is one row (8-bit floats: see f8_place), and so do the
// most formats of codes (is_coded), whose planes of a row are as in Layout::rows, data then scales. The other formats
// lie in panels of 16 rows: first the headers of every 256 columns, then records of 128 columns, in which each
// lane of a warp finds together what it multiplies with mma.m16n8k16. Usable by host code too.
//
// A record is read by lane 4 g + t, g < 8, t < 4, for rows g and g + 8 and, in each of the four blocks of 32 columns,
// for eight columns: 8 t ... 8 t + 7, or for Packed::narrow 4 t ... 4 t + 3 and 16 + 4 t ... 16 + 4 t + 3.
//   low:   `low` vectors of 16 bytes, vector-major. Four bits a value: word 2 * (row / 8) + block % 2 of vector block /
//   2,
//          even columns in the low half (split()). Bytes: words 2 * (row / 8) and the next of vector `block`.
//   high:  `high` words, lane-major: bits above the low four (pack_high() in linear_pack.cc).
//   scale: `scale` words, lane-major, of block t: 16 bits of row g, then of row g + 8.
// A header has for each g what rows g and g + 8 share over 256 columns.
#pragma once

#include "formats/list.h"

#ifdef __CUDACC__
#define QUERN_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define QUERN_HOST_DEVICE inline
#endif

namespace quern::cuda {

inline constexpr int panel_height = 16;
inline constexpr int record_columns = 128;
inline constexpr int header_columns = 256;

template <int Low, int High, int Scale, int Header, bool Narrow = false>
struct PackedSizes {
  static constexpr int low = Low;        // vectors of 16 bytes in each lane
  static constexpr int high = High;      // words in each lane
  static constexpr int scale = Scale;    // words in each lane
  static constexpr int header = Header;  // bytes of each row
  static constexpr bool narrow = Narrow;
  static constexpr int high_offset = 32 * 16 * low;
  static constexpr int scale_offset = high_offset + 32 * 4 * high;
  static constexpr int record_bytes = scale_offset + 32 * 4 * scale;
};

template <typename Format>
struct Packed;
template <>
struct Packed<Q4_0> : PackedSizes<2, 0, 1, 0> {};
template <>
struct Packed<Q4_1> : PackedSizes<2, 0, 2, 0> {};  // scale words: scale and minimum of row g, then of row g + 8
template <>
struct Packed<Q5_0> : PackedSizes<2, 2, 1, 0> {};
template <>
struct Packed<Q8_0> : PackedSizes<4, 0, 1, 0> {};
template <>
struct Packed<Q4_K> : PackedSizes<2, 0, 1, 4> {};  // scale bytes: scale and minimum, for each row; header: d, dmin
template <>
struct Packed<Q5_K> : PackedSizes<2, 2, 1, 4> {};  // scales as q4_k
template <>
struct Packed<Q6_K> : PackedSizes<2, 4, 1, 2, true> {};  // scale bytes: of two blocks of 16, for each row; header: d

template <typename Format>
inline constexpr bool is_f8 = Format::id == FormatId::f8 || Format::id == FormatId::f8_block;
template <typename Format>
inline constexpr bool is_float = Format::scale_bytes == 0 && !is_f8<Format>;
/// Formats of codes that only plain kernels know.
template <typename Format>
inline constexpr bool is_coded = requires { Format::code_bits; } && !requires { Packed<Format>::record_bytes; };
/// Whether a panel is one row.
template <typename Format>
inline constexpr bool in_rows = is_float<Format> || is_f8<Format> || is_coded<Format>;

/// Rows of 8-bit floats have whole chunks of 64 columns, in which lane t of four finds together the columns 8 t ... 8 t
/// + 7 and 32 + 8 t ... 32 + 8 t + 7. Of four columns the first two are in bytes 1 and 3 of a word, the others in bytes
/// 0 and 2: each pair is so made 16-bit floats. Behind the columns f8_block has its scales, the last of which may be
/// for 64 columns.
inline constexpr int f8_chunk = 64;
QUERN_HOST_DEVICE int f8_place(int column) {
  const int in_chunk = column % f8_chunk;
  const int byte = 0x2031 >> (4 * (column % 4)) & 15;  // 1, 3, 0, 2
  return column - in_chunk + 16 * (in_chunk % 32 / 8) + 8 * (in_chunk / 32) + in_chunk % 8 / 4 * 4 + byte;
}
QUERN_HOST_DEVICE int f8_columns(int32_t cols) { return (cols + f8_chunk - 1) / f8_chunk * f8_chunk; }

/// Records of one panel.
QUERN_HOST_DEVICE int records_of(int32_t cols) { return (cols + record_columns - 1) / record_columns; }

template <typename Format>
QUERN_HOST_DEVICE int64_t headers_bytes(int32_t cols) {
  return int64_t{(cols + header_columns - 1) / header_columns} * panel_height * Packed<Format>::header;
}
template <typename Format>
QUERN_HOST_DEVICE int64_t panel_bytes(int32_t cols) {
  if constexpr (is_float<Format>) {
    return int64_t{cols} / Format::group * Format::data_bytes;
  } else if constexpr (is_f8<Format>) {
    return (f8_columns(cols) + groups_of<Format>(cols) * Format::scale_bytes + 31) / 32 * 32;
  } else if constexpr (is_coded<Format>) {
    return (int64_t{cols} / Format::group * (Format::data_bytes + Format::scale_bytes) + 15) / 16 * 16;
  } else {
    return headers_bytes<Format>(cols) + int64_t{records_of(cols)} * Packed<Format>::record_bytes;
  }
}

/// Fields of `Width` bits of a word: those at even places to the low half, those at odd places to the high half.
template <int Width>
QUERN_HOST_DEVICE uint32_t split(uint32_t word) {
  constexpr uint32_t masks[] = {0x55555555U, 0x33333333U, 0x0F0F0F0FU, 0x00FF00FFU, 0x0000FFFFU};
  constexpr int first = Width == 1 ? 0 : Width == 2 ? 1 : 2;
  uint32_t even = word & masks[first];
  uint32_t odd = (word >> Width) & masks[first];
  for (int level = first + 1, shift = Width; level < 5; ++level, shift *= 2) {
    even = (even | even >> shift) & masks[level];
    odd = (odd | odd >> shift) & masks[level];
  }
  return even | odd << 16;
}
/// The inverse.
template <int Width>
QUERN_HOST_DEVICE uint32_t unsplit(uint32_t word) {
  constexpr uint32_t masks[] = {0x55555555U, 0x33333333U, 0x0F0F0F0FU, 0x00FF00FFU};
  constexpr int first = Width == 1 ? 0 : Width == 2 ? 1 : 2;
  uint32_t even = word & 0xFFFFU;
  uint32_t odd = word >> 16;
  for (int level = 3, shift = 8; level >= first; --level, shift /= 2) {
    even = (even | even << shift) & masks[level];
    odd = (odd | odd << shift) & masks[level];
  }
  return even | odd << Width;
}

#ifdef __CUDACC__
namespace packed {

/// Memory that formats of codes read words of in one piece: all their words are aligned.
struct Aligned {
  const std::byte* at;

  __device__ Aligned operator+(int64_t bytes) const { return {at + bytes}; }
  __device__ std::byte operator[](int64_t i) const { return at[i]; }
};
__device__ __forceinline__ uint32_t load_u32(Aligned p) { return *reinterpret_cast<const uint32_t*>(p.at); }
__device__ __forceinline__ uint32_t load_u16(Aligned p) { return *reinterpret_cast<const uint16_t*>(p.at); }

__device__ __forceinline__ uint32_t word(const std::byte* p) { return *reinterpret_cast<const uint32_t*>(p); }
__device__ __forceinline__ uint32_t half(const std::byte* p) { return *reinterpret_cast<const uint16_t*>(p); }

/// Eight values of a row in a panel, as words: columns 32 * block + 8 * i ... of a record.
template <typename Format>
struct Place {
  using P = Packed<Format>;
  const std::byte* headers;
  const std::byte* record;
  int row;    // in the panel
  int block;  // in the record
  int i;

  __device__ int lane(int t) const { return 4 * (row % 8) + t; }
  __device__ uint32_t low(int t) const {
    return word(record + 16 * (32 * (block / 2) + lane(t)) + 4 * (2 * (row / 8) + block % 2));
  }
  __device__ uint32_t high(int t, int index) const {
    return word(record + P::high_offset + 4 * (P::high * lane(t) + index));
  }
  __device__ uint32_t scale(int index) const {
    return word(record + P::scale_offset + 4 * (P::scale * lane(block) + index));
  }
  __device__ uint32_t half_scale() const { return scale(0) >> (16 * (row / 8)) & 0xFFFFU; }
  __device__ const std::byte* header() const { return headers + P::header * (2 * (row % 8) + row / 8); }
};

__device__ inline Eight decode(Q4_0, const Place<Q4_0>& at) {
  return Q4_0::decode8({{unsplit<4>(at.low(at.i))}}, {{at.half_scale()}}, 0);
}
__device__ inline Eight decode(Q4_1, const Place<Q4_1>& at) {
  return Q4_1::decode8({{unsplit<4>(at.low(at.i))}}, {{at.scale(at.row / 8)}}, 0);
}
__device__ inline Eight decode(Q5_0, const Place<Q5_0>& at) {
  const uint32_t high = unsplit<1>(at.high(at.i, at.row / 8)) >> (8 * at.block) & 255U;
  return Q5_0::decode8({{unsplit<4>(at.low(at.i)), high}}, {{at.half_scale()}}, 0);
}
__device__ inline Eight decode(Q8_0, const Place<Q8_0>& at) {
  const std::byte* words = at.record + 16 * (32 * at.block + at.lane(at.i)) + 8 * (at.row / 8);
  return Q8_0::decode8({{word(words), word(words + 4)}}, {{at.half_scale()}}, 0);
}
__device__ inline Eight decode(Q4_K, const Place<Q4_K>& at) {
  const uint32_t both = at.half_scale();
  return Q4_K::decode8({{unsplit<4>(at.low(at.i))}}, {{word(at.header()), both & 255U, 0, both >> 8, 0}}, 0);
}
__device__ inline Eight decode(Q5_K, const Place<Q5_K>& at) {
  const uint32_t high = unsplit<1>(at.high(at.i, at.row / 8)) >> (8 * at.block) & 255U;
  return Q5_K::decode8({{unsplit<4>(at.low(at.i)), high}}, {{word(at.header()), at.half_scale()}}, 0);
}
__device__ inline Eight decode(Q6_K, const Place<Q6_K>& at) {
  const int sixteen = at.i / 2;  // which half of the block: the low or the high halves of two lanes' words
  uint32_t low = 0;
  uint32_t high = 0;
  for (int k = 0; k < 2; ++k) {
    const int t = 2 * (at.i % 2) + k;
    const uint32_t highs = unsplit<2>(at.high(t, 2 * (at.row / 8) + at.block / 2)) >> (16 * (at.block % 2)) & 0xFFFFU;
    low |= (unsplit<4>(at.low(t)) >> (16 * sixteen) & 0xFFFFU) << (16 * k);
    high |= (highs >> (8 * sixteen) & 255U) << (8 * k);
  }
  return Q6_K::decode8({{low, high}}, {{at.half_scale(), 0, 0, 0, half(at.header())}}, at.i);
}

}  // namespace packed

/// Columns 8 * eighth ... 8 * eighth + 7 of a row of a packed weight.
template <typename Format>
__device__ Eight decode_packed(const std::byte* data, int32_t cols, int64_t row, int eighth) {
  if constexpr (is_float<Format>) {
    decltype(Format::load8(nullptr, 0)) words;
    const std::byte* from = data + row * panel_bytes<Format>(cols) + int64_t{eighth} * Format::data_bytes;
    for (int i = 0; i < Format::chunk_words; i += 4) {
      const uint4 four = *reinterpret_cast<const uint4*>(from + 4 * i);
      words.v[i] = four.x;
      words.v[i + 1] = four.y;
      words.v[i + 2] = four.z;
      words.v[i + 3] = four.w;
    }
    return Format::decode8(words, {}, 0);
  } else if constexpr (is_f8<Format>) {
    const std::byte* const from = data + row * panel_bytes<Format>(cols);
    const std::byte* const at = from + f8_chunk * (eighth / 8) + 16 * (eighth % 4) + 8 * (eighth / 4 % 2);
    const uint2 words = *reinterpret_cast<const uint2*>(at);
    decltype(Format::load_scales(nullptr, 0)) scales{};
    if constexpr (Format::scale_bytes > 0) scales.v[0] = packed::word(from + f8_columns(cols) + eighth / 16 * 4);
    return Format::decode8({{__byte_perm(words.x, 0, 0x2031), __byte_perm(words.y, 0, 0x2031)}}, scales, 0);
  } else if constexpr (is_coded<Format>) {
    const packed::Aligned from{data + row * panel_bytes<Format>(cols)};
    const int64_t group = eighth / (Format::group / 8);
    const int i = eighth % (Format::group / 8);
    const packed::Aligned scales = from + int64_t{cols} / Format::group * Format::data_bytes;
    return Format::decode8(Format::load8(from + group * Format::data_bytes, i),
                           Format::load_scales(scales + group * Format::scale_bytes, i), i);
  } else {
    const std::byte* panel = data + row / panel_height * panel_bytes<Format>(cols);
    const std::byte* headers = panel + eighth / 32 * panel_height * Packed<Format>::header;
    const std::byte* record = panel + headers_bytes<Format>(cols) + eighth / 16 * Packed<Format>::record_bytes;
    const int in_panel = static_cast<int>(row % panel_height);
    return packed::decode(Format{}, packed::Place<Format>{headers, record, in_panel, eighth / 4 % 4, eighth % 4});
  }
}
#endif

}  // namespace quern::cuda
