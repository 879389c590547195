// Sampling on a GPU: a first pass finds the best logit of every group of tokens and sums up chunks of groups; what
// comes after it looks only at groups that can matter.
#pragma once

#include <cfloat>
#include <climits>
#include <cstdint>

#include "backend/cuda/floats.h"
#include "ops/sample.h"

namespace quern::cuda {

inline constexpr int group_tokens = 256;
inline constexpr int chunk_groups = 32;
inline constexpr int chunk_tokens = group_tokens * chunk_groups;
inline constexpr int max_groups = 4096;
inline constexpr int max_chunks = max_groups / chunk_groups;
inline constexpr float no_logit = -INFINITY;

/// Some neighbouring logits of a row.
struct Chunk {
  float best = no_logit;
  int token = -1;        // the first that has it
  int finite = 1;        // all are
  float sum = 0.0F;      // of e^((x - best) / temperature), where the row needs it
  float raw_sum = 0.0F;  // of e^(x - best), where the row needs it
};

/// The logits of a step and what the first pass leaves for each of its rows.
struct SampleBuffers {
  float* logits = nullptr;
  int64_t stride = 0;
  int vocab = 0;
  int groups = 0;
  int chunks = 0;
  SampleRow* rows = nullptr;  // copies
  Chunk* parts = nullptr;     // [rows, chunks]
  float* bests = nullptr;     // [rows, groups]: best logit of each group
  float* copies = nullptr;    // [rows, vocab]: logits after masks, biases and penalties
  const SampleRow* host_rows = nullptr;
  Sampled* results = nullptr;  // the host's
  int32_t* next = nullptr;     // or null
};

/// Whether a row draws from a copy of its logits.
inline __host__ __device__ bool adjusts(const SampleRow& row) {
  return (row.typical_p < 1.0F && row.temperature >= 1e-5F) || !row.allowed.empty() || !row.banned.empty() ||
         !row.biases.empty() || !row.counts.empty();
}

#ifdef __CUDACC__
__device__ __forceinline__ bool is_greedy(const SampleRow& row) { return row.temperature < 1e-5F; }

/// Ascending with (value, then falling token); never 0 for a token.
__device__ __forceinline__ uint64_t order_key(float value, int token) {
  const uint32_t bits = __float_as_uint(value + 0.0F);  // -0 becomes 0
  const uint32_t ordered = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return uint64_t{ordered} << 32 | (0xFFFFFFFFU - static_cast<uint32_t>(token));
}
__device__ __forceinline__ int token_of_key(uint64_t key) {
  return static_cast<int>(0xFFFFFFFFU - static_cast<uint32_t>(key));
}

__device__ __forceinline__ uint64_t warp_max(uint64_t x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const uint64_t other = __shfl_xor_sync(0xFFFFFFFFU, x, step);
    x = other > x ? other : x;
  }
  return x;
}
#endif

}  // namespace quern::cuda
