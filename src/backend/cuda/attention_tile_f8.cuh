// Sixteen query rows against keys and values of 8-bit floats, which become half floats in registers. Dims of a product
// of queries and keys may be taken in any order, and so may columns of values: a thread takes dims that follow each
// other, so that it reads 16 bytes at once and what it reads is what its part of a matrix needs.
#pragma once

#include "backend/cuda/attention_tile.cuh"

namespace quern::cuda {

/// Order of the 16-byte pieces of a unit [key, dims] of 8-bit floats in shared memory: pieces of a key swapped such
/// that threads that read together find theirs in different banks; or plain.
enum class NarrowOrder { plain, keys, values };

#ifdef __CUDACC__
template <int dims, NarrowOrder order>
__device__ __forceinline__ unsigned narrow_offset(int row, int piece) {
  if constexpr (order == NarrowOrder::keys && dims > 64) piece ^= row % 2 * 4;
  if constexpr (order == NarrowOrder::values) piece ^= row / 2 % (dims > 64 ? 4 : 2) * 2;
  return row * dims + piece * 16;
}

/// Sixteen values.
__device__ __forceinline__ void load_piece(unsigned (&to)[4], unsigned from) {
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void load_piece(unsigned (&to)[2], unsigned from) {
  asm volatile("ld.shared.v2.b32 {%0,%1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "r"(from) : "memory");
}

/// Piece `piece` of a row becomes two chunks of half floats in a panel. Threads whose chunks would be in the same banks
/// take them in another order.
__device__ __forceinline__ void store_widened(unsigned panel, int row, int piece, const unsigned (&values)[4]) {
  const bool swapped = piece / 4 % 2 == 1;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const bool later = swapped != (i == 1);
    const unsigned first = later ? values[2] : values[0];
    const unsigned second = later ? values[3] : values[1];
    const int chunk = piece % 4 * 2 + (later ? 1 : 0);
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(panel + row * 128 + (chunk ^ row % 8) * 16),
                 "r"(halves_of_e4m3(first)), "r"(halves_of_e4m3(first >> 16)), "r"(halves_of_e4m3(second)),
                 "r"(halves_of_e4m3(second >> 16))
                 : "memory");
  }
}

/// Running sums of 16 rows, as RowSums has them of 16-bit floats.
template <int dims>
class NarrowSums {
 public:
  /// Sums of nothing, with queries [panel, 16, 64] of half floats.
  __device__ __forceinline__ void begin(unsigned queries) {
    sums_.clear();
    if constexpr (keeps_queries) {
#pragma unroll
      for (int quarter = 0; quarter < dims / 64; ++quarter) load_queries(queries_[quarter], queries, quarter);
    }
  }

  /// Adds keys [key, key + block) that are in shared memory with their values.
  template <int block>
  __device__ __forceinline__ void add(unsigned q, unsigned k, unsigned v, int key, const RowSight (&rows)[2],
                                      float log_scale, const Sight& sight) {
    float scores[block / 8][4];
    multiply_keys<block>(scores, q, k);
    sums_.template soften<block, margin>(scores, key, rows, log_scale, sight);
#pragma unroll
    for (int unit = 0; unit < block / unit_keys; ++unit) {
      add_values(scores[2 * unit], scores[2 * unit + 1], v + unit * (unit_keys * dims));
    }
  }

  __device__ __forceinline__ void finish() { sums_.finish(); }

  __device__ __forceinline__ void store(float* to, float* sums, int half) const {
#pragma unroll
    for (int part = 0; part < dims / 8; part += 4) {
      const auto& four = sums_.values;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = 2 * half + i;
        const int column = part / run * (8 * run) + (threadIdx.x % 4 * 2 + i) * run + part % run;
        *reinterpret_cast<float4*>(to + column) =
            make_float4(four[part][row], four[part + 1][row], four[part + 2][row], four[part + 3][row]);
      }
    }
    sums_.store_sums(sums, half);
  }

 private:
  static constexpr int margin = 8;                   // more weight than half floats can hold is far off
  using Queries = unsigned[4][4];                    // for four steps of a product, 16 dims each
  static constexpr bool keeps_queries = dims < 256;  // in registers
  static constexpr int run = dims == 64 ? 8 : 16;    // columns of values that follow each other in a thread

  /// The dims that a thread of four has in the steps of a quarter are 16 * (thread + 4 * quarter) + [0, 16).
  static __device__ __forceinline__ void load_queries(Queries& to, unsigned queries, int quarter) {
    const int row = threadIdx.x % 32 / 4;
    const int chunk = 2 * (threadIdx.x % 4 + 4 * quarter);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        unsigned words[4];
        load_piece(words, queries + chunk_offset(row + 8 * half, chunk + i));
        to[2 * i][half] = words[0];
        to[2 * i][half + 2] = words[1];
        to[2 * i + 1][half] = words[2];
        to[2 * i + 1][half + 2] = words[3];
      }
    }
  }

  __device__ __forceinline__ const Queries& pick(const Queries& loaded, int quarter) const {
    if constexpr (keeps_queries) return queries_[quarter];
    return loaded;
  }

  template <int block>
  __device__ __forceinline__ void multiply_keys(float (&scores)[block / 8][4], unsigned q, unsigned k) const {
    const int thread = threadIdx.x % 4;
#pragma unroll
    for (auto& part : scores) part[0] = part[1] = part[2] = part[3] = 0.0F;
#pragma unroll
    for (int quarter = 0; quarter < dims / 64; ++quarter) {
      Queries loaded;
      if constexpr (!keeps_queries) load_queries(loaded, q, quarter);
      const Queries& a = pick(loaded, quarter);
      unsigned keys[block / 8][4];
#pragma unroll
      for (int part = 0; part < block / 8; ++part) {
        const int row = part % 2 * 8 + threadIdx.x % 32 / 4;
        load_piece(keys[part], k + part / 2 * (unit_keys * dims) +
                                   narrow_offset<dims, NarrowOrder::keys>(row, thread + 4 * quarter));
      }
#pragma unroll
      for (int step = 0; step < 4; ++step) {
#pragma unroll
        for (int part = 0; part < block / 8; ++part) {
          multiply<Half>(scores[part], a[step], halves_of_e4m3(keys[part][step]),
                         halves_of_e4m3(keys[part][step] >> 16));
        }
      }
    }
  }

  /// Of a unit of 16 keys, whose weights are in two parts of scores.
  __device__ __forceinline__ void add_values(const float (&low)[4], const float (&high)[4], unsigned v) {
    const unsigned a[4] = {pack<Half>(low[0], low[1]), pack<Half>(low[2], low[3]), pack<Half>(high[0], high[1]),
                           pack<Half>(high[2], high[3])};
    constexpr int words = run / 4;
    const int thread = threadIdx.x % 4;
#pragma unroll
    for (int eighth = 0; eighth < dims / (8 * run); ++eighth) {
      unsigned rows[4][words];  // keys 2 * thread + {0, 1, 8, 9}
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = (threadIdx.x % 32 / 4 + 8 * eighth) * run;
        load_piece(rows[i], v + column % 16 +
                                narrow_offset<dims, NarrowOrder::values>(2 * thread + i % 2 + i / 2 * 8, column / 16));
      }
#pragma unroll
      for (int word = 0; word < words; ++word) {
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {  // of the word's four columns
          const unsigned order = pair == 0 ? 0x5140 : 0x7362;
          const unsigned b0 = __byte_perm(rows[0][word], rows[1][word], order);
          const unsigned b1 = __byte_perm(rows[2][word], rows[3][word], order);
          float(&sums)[4] = sums_.values[eighth * run + word * 4 + pair * 2];
          float(&next)[4] = sums_.values[eighth * run + word * 4 + pair * 2 + 1];
          multiply<Half>(sums, a, halves_of_e4m3(b0), halves_of_e4m3(b1));
          multiply<Half>(next, a, halves_of_e4m3(b0 >> 16), halves_of_e4m3(b1 >> 16));
        }
      }
    }
  }

  RowSums<Half, dims> sums_;
  Queries queries_[keeps_queries ? dims / 64 : 1];
};
#endif

}  // namespace quern::cuda
