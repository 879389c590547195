// What a lane holds of 16 rows of a packed weight, and how it becomes operands of mma.m16n8k16. Levels are exact in
// either half type; scales are applied to float sums.
#pragma once

#include "backend/cuda/floats.h"
#include "backend/cuda/packed.cuh"

namespace quern::cuda {

__device__ __forceinline__ uint4 stream16(const std::byte* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}
__device__ __forceinline__ uint2 stream8(const std::byte* p) {
  uint2 v;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
}
__device__ __forceinline__ uint32_t stream4(const std::byte* p) {
  uint32_t v;
  asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}

/// `Count` words of a lane, lane-major.
template <int Count>
__device__ __forceinline__ void stream_words(uint32_t (&to)[Count], const std::byte* p) {
  if constexpr (Count == 1) {
    to[0] = stream4(p);
  } else if constexpr (Count == 2) {
    const uint2 v = stream8(p);
    to[0] = v.x;
    to[1] = v.y;
  } else {
    static_assert(Count == 4);
    const uint4 v = stream16(p);
    to[0] = v.x;
    to[1] = v.y;
    to[2] = v.z;
    to[3] = v.w;
  }
}

template <int Count>
__device__ __forceinline__ void take_words(uint32_t (&to)[Count], const std::byte* p) {
  if constexpr (Count == 1) {
    to[0] = *reinterpret_cast<const uint32_t*>(p);
  } else if constexpr (Count == 2) {
    const uint2 v = *reinterpret_cast<const uint2*>(p);
    to[0] = v.x;
    to[1] = v.y;
  } else {
    static_assert(Count == 4);
    const uint4 v = *reinterpret_cast<const uint4*>(p);
    to[0] = v.x;
    to[1] = v.y;
    to[2] = v.z;
    to[3] = v.w;
  }
}

__device__ __forceinline__ float2 halves(uint32_t bits) { return __half22float2(*reinterpret_cast<__half2*>(&bits)); }

/// Copies 4, 8 or 16 bytes to shared memory, in the background.
template <int Bytes>
__device__ __forceinline__ void fetch(std::byte* to, const std::byte* from) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(from), "n"(Bytes) : "memory");
  }
}
__device__ __forceinline__ void close_fetches() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Until all but the `Later` youngest groups of this thread's fetches are there.
template <int Later>
__device__ __forceinline__ void wait_for_fetches() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Later) : "memory");
}

/// Pairs of small integers as pairs of a half type: or-ing `bits` gives 1024 + n or 128 + n, the unit being 1.
template <typename T>
struct Magic;
template <>
struct Magic<Half> {
  static constexpr uint32_t bits = 0x64006400U;
  static __device__ __forceinline__ uint32_t subtract(uint32_t a, uint32_t b) {
    const __half2 d = __hsub2(*reinterpret_cast<__half2*>(&a), *reinterpret_cast<__half2*>(&b));
    return *reinterpret_cast<const uint32_t*>(&d);
  }
  static __device__ __forceinline__ uint32_t multiply(uint32_t a, uint32_t b) {
    const __half2 d = __hmul2(*reinterpret_cast<__half2*>(&a), *reinterpret_cast<__half2*>(&b));
    return *reinterpret_cast<const uint32_t*>(&d);
  }
  static __device__ __forceinline__ float2 floats(uint32_t pair) { return halves(pair); }
  static constexpr uint32_t one = 0x3C003C00U;
};
template <>
struct Magic<Bf16> {
  static constexpr uint32_t bits = 0x43004300U;
  static __device__ __forceinline__ uint32_t subtract(uint32_t a, uint32_t b) {
    const __nv_bfloat162 d = __hsub2(*reinterpret_cast<__nv_bfloat162*>(&a), *reinterpret_cast<__nv_bfloat162*>(&b));
    return *reinterpret_cast<const uint32_t*>(&d);
  }
  static __device__ __forceinline__ uint32_t multiply(uint32_t a, uint32_t b) {
    const __nv_bfloat162 d = __hmul2(*reinterpret_cast<__nv_bfloat162*>(&a), *reinterpret_cast<__nv_bfloat162*>(&b));
    return *reinterpret_cast<const uint32_t*>(&d);
  }
  static __device__ __forceinline__ float2 floats(uint32_t pair) {
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000U)};
  }
  static constexpr uint32_t one = 0x3F803F80U;
};

/// Integers of two 16-bit lanes, less `zero`, as a pair of T.
template <typename T>
__device__ __forceinline__ uint32_t to_pair(uint32_t integers, uint32_t zero) {
  return Magic<T>::subtract(integers | Magic<T>::bits, Magic<T>::bits + zero * 0x00010001U);
}

/// The 16 x 32 block of a lane as operands: word p of row half h holds its values 2 p and 2 p + 1.
struct Fragments {
  uint32_t a[2][4];
};

/// Factors of a block: value = scale * level + minimum. Rows g and g + 8; two halves of the block where Packed::narrow.
struct Factors {
  float scale[2][2];
  float minimum[2];
};

/// One record of a quantized format in a warp: what Packed says of this lane.
template <typename Format, typename T>
struct Unit {
  using P = Packed<Format>;
  static constexpr int columns = record_columns;
  static constexpr int parts = 1;  // that are loaded and used by themselves
  static constexpr int blocks = 4;
  static constexpr int header_words = P::header / 2;  // of both rows

  /// Where each lane's words lie in a slot of shared memory; no lane reads what another fetched.
  static constexpr int high_at = 512 * P::low;
  static constexpr int scale_at = high_at + 128 * P::high;
  static constexpr int header_at = scale_at + 128 * P::scale;
  static constexpr int slot_bytes = header_at + 128 * header_words;

  uint4 low[P::low];
  uint32_t high[P::high > 0 ? P::high : 1];
  uint32_t scale[P::scale];
  uint32_t header[header_words > 0 ? header_words : 1];

  /// `record` and the header of its rows.
  __device__ __forceinline__ void load(const std::byte* record, const std::byte* headers, int lane) {
#pragma unroll
    for (int v = 0; v < P::low; ++v) low[v] = stream16(record + 16 * (32 * v + lane));
    if constexpr (P::high > 0) stream_words<P::high>(high, record + P::high_offset + 4 * P::high * lane);
    stream_words<P::scale>(scale, record + P::scale_offset + 4 * P::scale * lane);
    if constexpr (header_words > 0) stream_words<header_words>(header, headers + 2 * P::header * (lane / 4));
  }

  /// The same by way of a slot.
  static __device__ __forceinline__ void fetch_to(std::byte* slot, const std::byte* record, const std::byte* headers,
                                                  int lane) {
#pragma unroll
    for (int v = 0; v < P::low; ++v) fetch<16>(slot + 512 * v + 16 * lane, record + 512 * v + 16 * lane);
    if constexpr (P::high > 0) {
      constexpr int bytes = 4 * P::high;
      fetch<bytes>(slot + high_at + bytes * lane, record + P::high_offset + bytes * lane);
    }
    constexpr int bytes = 4 * P::scale;
    fetch<bytes>(slot + scale_at + bytes * lane, record + P::scale_offset + bytes * lane);
    if constexpr (header_words > 0) {
      fetch<4 * header_words>(slot + header_at + 4 * header_words * lane, headers + 2 * P::header * (lane / 4));
    }
  }
  __device__ __forceinline__ void take(const std::byte* slot, int lane) {
    take(slot, slot + header_at + 4 * header_words * lane, lane);
  }
  /// From a record, and what this lane needs of the headers.
  __device__ __forceinline__ void take(const std::byte* record, const std::byte* own_header, int lane) {
#pragma unroll
    for (int v = 0; v < P::low; ++v) low[v] = *reinterpret_cast<const uint4*>(record + 512 * v + 16 * lane);
    if constexpr (P::high > 0) take_words(high, record + high_at + 4 * P::high * lane);
    take_words(scale, record + scale_at + 4 * P::scale * lane);
    if constexpr (header_words > 0) take_words(header, own_header);
  }

  __device__ __forceinline__ Fragments fragments(int block) const {
    Fragments out;
#pragma unroll
    for (int half = 0; half < 2; ++half) levels(block, half, out.a[half]);
    return out;
  }

  __device__ __forceinline__ Factors factors(int block, int lane) const {
    uint32_t words[P::scale];
#pragma unroll
    for (int i = 0; i < P::scale; ++i) words[i] = __shfl_sync(0xFFFFFFFFU, scale[i], (lane & 28) + block);
    return factors_of(words);
  }
  /// Of the block whose scales this lane has.
  __device__ __forceinline__ Factors own_factors() const { return factors_of(scale); }

  __device__ __forceinline__ uint32_t low_word(int block, int half) const {
    const uint4 v = low[block / 2];
    return half == 0 ? (block % 2 == 0 ? v.x : v.y) : (block % 2 == 0 ? v.z : v.w);
  }

 private:
  __device__ __forceinline__ Factors factors_of(const uint32_t (&words)[P::scale]) const {
    Factors out{};
    if constexpr (Format::id == FormatId::q4_1) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 both = halves(words[half]);
        out.scale[half][0] = both.x;
        out.minimum[half] = both.y;
      }
    } else if constexpr (Format::id == FormatId::q4_k || Format::id == FormatId::q5_k) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 unit = halves(header[half]);
        const float2 both = halves(to_pair<Half>(__byte_perm(words[0], 0, half == 0 ? 0x4140 : 0x4342), 0));
        out.scale[half][0] = unit.x * both.x;
        out.minimum[half] = -(unit.y * both.y);
      }
    } else if constexpr (Format::id == FormatId::q6_k) {
      const float2 unit = halves(header[0]);
      const uint32_t biased = words[0] ^ 0x80808080U;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 both = halves(to_pair<Half>(__byte_perm(biased, 0, half == 0 ? 0x4140 : 0x4342), 128));
        const float d = half == 0 ? unit.x : unit.y;
        out.scale[half][0] = d * both.x;
        out.scale[half][1] = d * both.y;
      }
    } else {
      const float2 both = halves(words[0]);
      out.scale[0][0] = both.x;
      out.scale[1][0] = both.y;
    }
    return out;
  }

  __device__ __forceinline__ void levels(int block, int half, uint32_t (&out)[4]) const {
    if constexpr (Format::id == FormatId::q8_0) {
      const uint4 v = low[block];
      bytes(half == 0 ? v.x : v.z, out[0], out[1]);
      bytes(half == 0 ? v.y : v.w, out[2], out[3]);
    } else if constexpr (Format::id == FormatId::q5_0 || Format::id == FormatId::q5_k) {
      constexpr uint32_t zero = Format::id == FormatId::q5_0 ? 16 : 0;
      const uint32_t word = low_word(block, half);
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const uint32_t top = (high[half] >> (4 * block + p) & 0x00010001U) << 4;
        out[p] = to_pair<T>((word >> (4 * p) & 0x000F000FU) | top, zero);
      }
    } else if constexpr (Format::id == FormatId::q6_k) {
      const uint32_t word = low_word(block, half);
      const uint32_t tops = high[2 * half + block / 2] >> (8 * (block % 2));
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const uint32_t top = (tops >> (2 * p) & 0x00030003U) << 4;
        out[p] = to_pair<T>((word >> (4 * p) & 0x000F000FU) | top, 32);
      }
    } else {
      nibbles(low_word(block, half), Format::id == FormatId::q4_0 ? 8 : 0, out);
    }
  }

  static __device__ __forceinline__ void nibbles(uint32_t word, uint32_t zero, uint32_t (&out)[4]) {
#pragma unroll
    for (int p = 0; p < 4; ++p) out[p] = to_pair<T>(word >> (4 * p) & 0x000F000FU, zero);
  }

  /// Four signed bytes.
  static __device__ __forceinline__ void bytes(uint32_t word, uint32_t& first, uint32_t& second) {
    if constexpr (Magic<T>::bits == Magic<Half>::bits) {
      word ^= 0x80808080U;
      first = to_pair<T>(__byte_perm(word, 0, 0x4140), 128);
      second = to_pair<T>(__byte_perm(word, 0, 0x4342), 128);
    } else {
      // Seven bits fit beside the exponent of 128; the sign bit makes it 256, which is what it counts for.
      const uint32_t a = __byte_perm(word, Magic<T>::bits, 0x5150);
      const uint32_t b = __byte_perm(word, Magic<T>::bits, 0x5352);
      first = Magic<T>::subtract(a & 0xFF7FFF7FU, a & 0xFF80FF80U);
      second = Magic<T>::subtract(b & 0xFF7FFF7FU, b & 0xFF80FF80U);
    }
  }
};

/// 16 rows x 64 columns of floats of the activations' own type; each half of the columns is used by itself.
template <typename T>
struct FloatUnit {
  static constexpr int columns = 64;
  static constexpr int parts = 2;
  static constexpr int blocks = 1;

  static constexpr int slot_bytes = 4 * 512;

  uint4 words[2][2];  // part, row half

  __device__ __forceinline__ void take(const std::byte* slot, int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i / 2][i % 2] = *reinterpret_cast<const uint4*>(slot + 512 * i + 16 * lane);
  }

  __device__ __forceinline__ Fragments fragments(int part, int /*block*/ = 0) const {
    Fragments out;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      out.a[half][0] = words[part][half].x;
      out.a[half][1] = words[part][half].y;
      out.a[half][2] = words[part][half].z;
      out.a[half][3] = words[part][half].w;
    }
    return out;
  }
};

/// Four columns of 8-bit floats, as f8_place() has them, as two pairs of T. What is no number becomes 480.
template <typename T>
__device__ __forceinline__ void f8_pairs(uint32_t word, uint32_t& first, uint32_t& second) {
  constexpr bool is_half = Magic<T>::bits == Magic<Half>::bits;
  constexpr int shift = is_half ? 1 : 4;
  constexpr uint32_t magnitude = is_half ? 0x3F803F80U : 0x07F007F0U;
  constexpr uint32_t factor = is_half ? 0x5C005C00U : 0x7B807B80U;  // 2^8, 2^120: what the exponents lack
  first = Magic<T>::multiply((word & 0x80008000U) | (word >> shift & magnitude), factor);
  word <<= 8;
  second = Magic<T>::multiply((word & 0x80008000U) | (word >> shift & magnitude), factor);
}

/// 16 rows x 128 columns of 8-bit floats: of each row two chunks.
template <typename Format, typename T>
struct F8Unit {
  static constexpr int columns = 2 * f8_chunk;
  static constexpr int parts = 2;

  uint4 words[2][2];                                      // part, row half
  float scale[Format::scale_bytes > 0 ? 2 : 1] = {1.0F};  // of rows g and g + 8

  static constexpr int scale_at = 4 * 512;
  static constexpr int slot_bytes = scale_at + (Format::scale_bytes > 0 ? 2 * 128 : 0);

  __device__ __forceinline__ void take(const std::byte* slot, int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i / 2][i % 2] = *reinterpret_cast<const uint4*>(slot + 512 * i + 16 * lane);
    if constexpr (Format::scale_bytes > 0) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        scale[half] = *reinterpret_cast<const float*>(slot + scale_at + 128 * half + 4 * lane);
      }
    }
  }

  /// 32 columns.
  __device__ __forceinline__ Fragments fragments(int part, int block) const {
    Fragments out;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4& all = words[part][half];
      f8_pairs<T>(block == 0 ? all.x : all.z, out.a[half][0], out.a[half][1]);
      f8_pairs<T>(block == 0 ? all.y : all.w, out.a[half][2], out.a[half][3]);
    }
    return out;
  }
};

/// What a warp reads of 16 rows at once.
template <typename Format, typename T>
struct UnitOf {
  using type = Unit<Format, T>;
};
template <typename Format, typename T>
  requires is_float<Format>
struct UnitOf<Format, T> {
  using type = FloatUnit<T>;
};
template <typename Format, typename T>
  requires is_f8<Format>
struct UnitOf<Format, T> {
  using type = F8Unit<Format, T>;
};

/// Of formats in rows: loads a part of unit `number`; `rows` are the two of this lane.
template <typename Format, typename Unit>
__device__ __forceinline__ void load_from_rows(Unit& unit, const std::byte* const (&rows)[2], int number, int part,
                                               int cols) {
  const int quarter = static_cast<int>(threadIdx.x % 4);
  if constexpr (is_float<Format>) {
    const int column = min(number * Unit::columns + 32 * part + 8 * quarter, cols - 8);
#pragma unroll
    for (int half = 0; half < 2; ++half) unit.words[part][half] = stream16(rows[half] + 2 * column);
  } else {
    const int columns = f8_columns(cols);
    const int at = min(number * Unit::columns + f8_chunk * part + 16 * quarter, columns - 16);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      unit.words[part][half] = stream16(rows[half] + at);
      if constexpr (Format::scale_bytes > 0) {
        if (part == 0) unit.scale[half] = __uint_as_float(stream4(rows[half] + columns + 4 * number));
      }
    }
  }
}

/// The same by way of a slot, both parts.
template <typename Format, typename Unit>
__device__ __forceinline__ void fetch_from_rows(std::byte* slot, const std::byte* const (&rows)[2], int number,
                                                int cols) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int columns = is_float<Format> ? cols : f8_columns(cols);
  constexpr int bytes = is_float<Format> ? 2 : 1;  // of a value
  constexpr int in_lane = 16 / bytes;              // values
  constexpr int part_columns = Unit::columns / 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int column = min(number * Unit::columns + part_columns * (i / 2) + in_lane * (lane % 4), columns - in_lane);
    fetch<16>(slot + 512 * i + 16 * lane, rows[i % 2] + bytes * column);
  }
  if constexpr (Format::scale_bytes > 0) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      fetch<4>(slot + Unit::scale_at + 128 * half + 4 * lane, rows[half] + columns + 4 * number);
    }
  }
}

/// sums += A B for a 16 x 16 block of weights and eight tokens.
template <typename T>
__device__ __forceinline__ void multiply(float (&sums)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                         uint32_t b0, uint32_t b1) {
  if constexpr (Magic<T>::bits == Magic<Half>::bits) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

}  // namespace quern::cuda
