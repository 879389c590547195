// Products of experts' packed weights with the pairs that were routed to them.
#pragma once

#include <optional>

#include "backend/cuda/floats.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/linear_dequantize.h"
#include "ops/moe.h"

namespace quern::cuda {

inline constexpr int expert_warps = 8;
inline constexpr int most_one_pairs = 64;

/// One part of neighbouring experts' matrices, which lie at equal distances.
struct ExpertPart {
  const std::byte* data = nullptr;  // of the first expert
  int64_t step = 0;                 // bytes between experts
  int32_t rows = 0;
  int32_t first_row = 0;  // in y
  int32_t tiles_end = 0;  // tiles of the parts up to this one
};

/// y[i] = scale * (W_e x[i]) + bias for the pairs i of each of the experts.
struct ExpertJob {
  ExpertPart parts[3];
  int32_t cols = 0;
  int32_t experts = 0;
  int32_t slots = 0;  // experts that can have pairs
  int32_t pairs = 0;  // of all experts of the step
  int32_t all_experts = 0;
  std::byte* inputs = nullptr;   // of many pairs: a place for what they read, and for experts' weights as half floats;
  std::byte* weights = nullptr;  // or null
  bool one_token = false;        // these are all experts, with a pair of one token each
  int32_t row_groups = 1;        // groups of 16 rows in a tile; the warps of a group share its columns
  const int32_t* starts = nullptr;
  const int32_t* tokens = nullptr;  // which row of x each pair reads; null: its own
  const void* x = nullptr;
  void* y = nullptr;
  int64_t x_stride = 0;
  int64_t y_stride = 0;
  RowFactors first;  // of the first expert
  int64_t scale_step = 0;
  int64_t bias_step = 0;
  const std::byte* next = nullptr;  // what is read after this, of the first expert, or null
  int64_t next_step = 0;
  int64_t next_bytes = 0;           // of each expert
  std::optional<Activation> gated;  // y[i] = activation(gate) * up, of two parts of equal rows

#ifdef __CUDACC__
  __device__ __forceinline__ RowFactors factors(int expert) const {
    return {first.scale == nullptr ? nullptr : first.scale + expert * scale_step,
            first.bias == nullptr ? nullptr : first.bias + expert * bias_step};
  }
#endif
};

#ifdef __CUDACC__
/// Which row of x a pair reads.
__device__ __forceinline__ int64_t input_of(const ExpertJob& job, int pair) {
  return job.tokens == nullptr ? pair : job.tokens[pair];
}

/// The expert that is number `slot` of those with pairs, or -1. For whole warps.
__device__ __forceinline__ int expert_of_slot(const int32_t* starts, int experts, int slot) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int first = 0; first < experts; first += 32) {
    const int e = first + lane;
    const bool has_pairs = e < experts && starts[e + 1] > starts[e];
    const unsigned with_pairs = __ballot_sync(0xFFFFFFFFU, has_pairs);
    const int before = __popc(with_pairs & ((1U << lane) - 1));
    const unsigned found = __ballot_sync(0xFFFFFFFFU, has_pairs && before == slot);
    if (found != 0) return first + __ffs(static_cast<int>(found)) - 1;
    slot -= __popc(with_pairs);
  }
  return -1;
}

__device__ __forceinline__ int part_of_tile(const ExpertJob& job, int tile) {
  int part = 0;
  while (tile >= job.parts[part].tiles_end) ++part;
  return part;
}
#endif

/// Matrix units; for columns in whole units (expert_unit_columns) and x in rows of whole 16 bytes. One for each format
/// and type of activations; floats only with their own. `pairs` is how many an expert has at most, or mostly.
template <typename Format, typename T>
void launch_experts(const Queue& queue, ExpertJob job, int pairs);

/// The pairs of one token with weights in rows; false if they do not fit. All experts, one part or two gated ones, and
/// x in rows of whole 16 bytes. One for each of these formats and type of activations.
template <typename Format, typename T>
bool launch_one_experts(const Queue& queue, const ExpertJob& job);

/// The same on GPUs with matrix instructions of warpgroups: whether it can, and false if the driver cannot. Inputs lie
/// in the order of pairs: gather_pairs() makes that.   to: [pairs, cols]
bool takes_wide_experts(const ExpertJob& job);
template <typename T>
bool launch_wide_experts(const Queue& queue, const ExpertJob& job);
void gather_pairs(const Queue& queue, std::byte* to, const ExpertJob& job);

/// For weights of the activations' type and many pairs of each expert. A result depends on how its sum is cut.
template <typename T>
void launch_expert_tiles(const Queue& queue, const ExpertJob& job);

/// Any format, type and size; not gated.
void launch_plain_experts(const Queue& queue, FormatId format, Dtype activations, const ExpertJob& job);

}  // namespace quern::cuda
