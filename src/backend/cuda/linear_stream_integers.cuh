// Products of the levels of quantized formats with activations in integers. Of each 32 columns of a token the largest
// magnitude becomes 32512; a value is 256 * high + low, and both are multiplied by themselves, as columns of a matrix:
// column 2 b + p of the second operand is part p of block b of a record and zero in the other blocks' products, so that
// after a record lane 4 g + t holds what block t gave for rows g and g + 8, whose scales it read.
#pragma once

#include "backend/cuda/barriers.cuh"
#include "backend/cuda/linear_stream.h"
#include "backend/cuda/linear_unpack.cuh"

namespace quern::cuda {

/// Of 32 columns of a token: the unit of its integers, and what its products begin with (formats with a zero) or their
/// sum (formats with a minimum).
struct StreamBlock {
  float scale;
  int32_t begin;
};
struct NarrowStreamBlock {
  float scale;
  int32_t begin[2];
  int32_t unused;
};

/// The sum of values from those of their two bytes.
__device__ __forceinline__ float value_of(int32_t high, int32_t low) { return static_cast<float>(high * 256 + low); }

/// sums += A B of bytes, 16 x 32 by 32 x 8, or 16 x 16 by 16 x 8.
template <bool Signed>
__device__ __forceinline__ void multiply_bytes(int32_t (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (Signed) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}
__device__ __forceinline__ void multiply_bytes(int32_t (&sums)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
      : "r"(a0), "r"(a1), "r"(b));
}

/// The place of each of a lane's eight columns of a block in its two words of bytes.
template <typename Format>
constexpr int byte_column(int byte) {
  constexpr int nibbles[] = {0, 4, 1, 5, 2, 6, 3, 7};
  constexpr int narrow[] = {0, 2, 1, 3, 4, 6, 5, 7};
  return Packed<Format>::narrow ? narrow[byte] : Format::id == FormatId::q8_0 ? byte : nibbles[byte];
}

/// Levels of a record as bytes: operands of multiply_bytes, {row g, row g + 8} of the first and of the second columns.
template <typename Format>
struct ByteLevels {
  uint32_t a[4][4];

  __device__ __forceinline__ explicit ByteLevels(const Unit<Format, Half>& unit) {
#pragma unroll
    for (int block = 0; block < 4; ++block) {
#pragma unroll
      for (int half = 0; half < 2; ++half) make(unit, block, half, a[block][half], a[block][2 + half]);
    }
  }

 private:
  static __device__ __forceinline__ void make(const Unit<Format, Half>& unit, int block, int half, uint32_t& first,
                                              uint32_t& second) {
    constexpr uint32_t nibbles = 0x0F0F0F0FU;
    if constexpr (Format::id == FormatId::q8_0) {
      const uint4 v = unit.low[block];
      first = half == 0 ? v.x : v.z;
      second = half == 0 ? v.y : v.w;
    } else if constexpr (Format::id == FormatId::q6_k) {
      const uint32_t word = unit.low_word(block, half);
      const uint32_t tops = unit.high[2 * half + block / 2] >> (8 * (block % 2));
      first = (word & 0x000F000FU) | (word << 4 & 0x0F000F00U);
      first |= (tops << 4 & 0x00300030U) | (tops << 10 & 0x30003000U);
      second = (word >> 8 & 0x000F000FU) | (word >> 4 & 0x0F000F00U);
      second |= (tops & 0x00300030U) | (tops << 6 & 0x30003000U);
    } else {
      const uint32_t word = unit.low_word(block, half);
      first = word & nibbles;
      second = word >> 4 & nibbles;
      if constexpr (Format::id == FormatId::q5_0 || Format::id == FormatId::q5_k) {
        const uint32_t tops = unit.high[half] >> (4 * block);
        first |= (tops << 4 & 0x00100010U) | (tops << 10 & 0x10001000U);
        second |= (tops << 3 & 0x00100010U) | (tops << 9 & 0x10001000U);
      }
    }
  }
};

template <typename Format, typename T, int Tokens>
struct IntegerProducts {
  using Stage = StreamStage<Format>;
  using P = Packed<Format>;
  using Block = std::conditional_t<P::narrow, NarrowStreamBlock, StreamBlock>;
  static_assert(sizeof(Block) == Stage::block_bytes);

  float sums[Tokens][2] = {};  // of rows g and g + 8, block t of each record

  /// Makes integers of all tokens' columns: of each the bytes of all records, then their blocks.
  static __device__ void stage_x(const SkinnyJob& job, std::byte* x, int begin, int units) {
    constexpr int at_once = 4;  // so that their values are on their way together
    constexpr int step = 8 * stream_warps;
    const int lane = threadIdx.x % 32;
    const int blocks = 4 * units;
    const int total = job.tokens * blocks;
    for (int first = static_cast<int>(threadIdx.x) / 32 * 8; first < total; first += at_once * step) {
      float values[at_once][8];
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const int number = min(first + i * step + lane / 4, total - 1);
        const int token = Tokens == 1 ? 0 : number / blocks;
        if (first + i * step < total) load_columns(job, token, 32 * (4 * begin + number - token * blocks), values[i]);
      }
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const int number = min(first + i * step + lane / 4, total - 1);
        const int token = Tokens == 1 ? 0 : number / blocks;
        const int block = number - token * blocks;
        std::byte* const to = x + token * job.x_pitch;
        if (first + i * step >= total) break;
        make_block(values[i], to + 64 * block, reinterpret_cast<Block*>(to + 256 * job.share) + block,
                   first + i * step + lane / 4 < total);
      }
    }
  }

  __device__ __forceinline__ void add(const SkinnyJob& job, const std::byte* stage, int unit, const std::byte* x,
                                      int number) {
    const int lane = threadIdx.x % 32;
    Unit<Format, Half> w;
    const std::byte* const headers = stage + job.headers_at + unit / 2 * panel_height * P::header;
    w.take(stage + unit * P::record_bytes, headers + 2 * P::header * (lane / 4), lane);
    const ByteLevels<Format> levels(w);
    const Factors factors = w.own_factors();
#pragma unroll
    for (int token = 0; token < Tokens; ++token) {
      const std::byte* const from = x + min(token, job.tokens - 1) * job.x_pitch;
      const uint2 bytes = *reinterpret_cast<const uint2*>(from + 256 * number + 8 * lane);
      const Block block = reinterpret_cast<const Block*>(from + 256 * job.share)[4 * number + lane % 4];
      add_token(sums[token], levels, factors, bytes, block);
    }
  }

  template <typename Store>
  __device__ __forceinline__ void leave(const SkinnyJob& job, Store&& store) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int token = 0; token < Tokens; ++token) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float sum = sums[token][half];
        sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 1);
        sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 2);
        if (lane % 4 == 0 && token < job.tokens) store(token * panel_height + lane / 4 + 8 * half, sum);
      }
    }
  }

 private:
  /// This lane's eight columns of a block, as Packed says; zeros behind the last one.
  static __device__ __forceinline__ void load_columns(const SkinnyJob& job, int token, int column, float (&values)[8]) {
    const int quarter = threadIdx.x % 4;
    const T* const from = static_cast<const T*>(job.x) + token * job.x_stride;
    T loaded[8];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = column + (P::narrow ? 16 * half + 4 * quarter : 8 * quarter + 4 * half);
      if (at >= job.cols) {
        for (int i = 0; i < 4; ++i) loaded[4 * half + i] = from_float<T>(0.0F);
      } else if (job.x_aligned) {
        *reinterpret_cast<uint2*>(loaded + 4 * half) = *reinterpret_cast<const uint2*>(from + at);
      } else {
        for (int i = 0; i < 4; ++i) loaded[4 * half + i] = from[at + i];
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = to_float(loaded[i]);
  }

  /// A quarter of a block by each of four lanes. What is no finite number makes the block's unit NaN.
  static __device__ __forceinline__ void make_block(const float (&values)[8], std::byte* bytes, Block* block,
                                                    bool wanted) {
    constexpr unsigned infinite = 0x7F800000U;
    constexpr float largest = 32512.0F;
    constexpr float tiny = 1e-30F;
    unsigned most = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) most = max(most, __float_as_uint(values[i]) & 0x7FFFFFFFU);
    most = max(most, __shfl_xor_sync(0xFFFFFFFFU, most, 1));
    most = max(most, __shfl_xor_sync(0xFFFFFFFFU, most, 2));
    const bool usual = most < infinite && __uint_as_float(most) > tiny;
    const float factor = usual ? largest / __uint_as_float(most) : 0.0F;
    uint32_t high[2] = {};
    uint32_t low[2] = {};
    int32_t sums[2] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int32_t value = usual ? __float2int_rn(values[byte_column<Format>(i)] * factor) : 0;
      const int32_t upper = (value + 128) >> 8;
      high[i / 4] |= (static_cast<uint32_t>(upper) & 0xFFU) << (8 * (i % 4));
      low[i / 4] |= (static_cast<uint32_t>(value) & 0xFFU) << (8 * (i % 4));
      sums[P::narrow ? i / 4 : 0] += value;
    }
#pragma unroll
    for (int i = 0; i < (P::narrow ? 2 : 1); ++i) {
      sums[i] += __shfl_xor_sync(0xFFFFFFFFU, sums[i], 1);
      sums[i] += __shfl_xor_sync(0xFFFFFFFFU, sums[i], 2);
    }
    if (!wanted) return;
    const int quarter = threadIdx.x % 4;
    *reinterpret_cast<uint2*>(bytes + 8 * quarter) = {high[0], high[1]};
    *reinterpret_cast<uint2*>(bytes + 32 + 8 * quarter) = {low[0], low[1]};
    if (quarter != 0) return;
    const float unit = most >= infinite ? __uint_as_float(0x7FC00000U) : usual ? 1.0F / factor : 0.0F;
    if constexpr (P::narrow) {
      *block = {unit, {-stream_zero<Format>() * sums[0], -stream_zero<Format>() * sums[1]}, 0};
    } else if constexpr (has_minimum<Format>) {
      *block = {unit, __float_as_int(unit * static_cast<float>(sums[0]))};
    } else {
      *block = {unit, -stream_zero<Format>() * sums[0]};
    }
  }

  /// One record times one token.
  static __device__ __forceinline__ void add_token(float (&sums)[2], const ByteLevels<Format>& levels,
                                                   const Factors& factors, uint2 bytes, const Block& block) {
    const int mine = threadIdx.x % 32 / 8;  // the block whose bytes this lane brings
    int32_t products[2][4] = {};
    if constexpr (P::narrow) {
#pragma unroll
      for (int i = 0; i < 2; ++i) products[i][1] = products[i][3] = block.begin[i];
    } else if constexpr (!has_minimum<Format>) {
      products[0][1] = products[0][3] = block.begin;
    }
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      const uint32_t first = mine == b ? bytes.x : 0;
      const uint32_t second = mine == b ? bytes.y : 0;
      if constexpr (P::narrow) {
        multiply_bytes(products[0], levels.a[b][0], levels.a[b][1], first);
        multiply_bytes(products[1], levels.a[b][2], levels.a[b][3], second);
      } else {
        multiply_bytes<Format::id == FormatId::q8_0>(products[0], levels.a[b], first, second);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float value = value_of(products[0][2 * half], products[0][2 * half + 1]);
      if constexpr (P::narrow) {
        const float other = value_of(products[1][2 * half], products[1][2 * half + 1]);
        sums[half] += block.scale * (factors.scale[half][0] * value + factors.scale[half][1] * other);
      } else {
        sums[half] += block.scale * factors.scale[half][0] * value;
        if constexpr (has_minimum<Format>) sums[half] += factors.minimum[half] * __int_as_float(block.begin);
      }
    }
  }
};

}  // namespace quern::cuda
