// The experts of one token, whose weights lie in rows: the kernel of linear_one.h over the rows of all of them.
#pragma once

#include "backend/cuda/activation.cuh"
#include "backend/cuda/linear_one.cuh"
#include "backend/cuda/moe_experts.h"

namespace quern::cuda {

inline constexpr int one_expert_rows = 4;  // of a group

/// The expert of each pair; all threads.
__device__ __forceinline__ void find_experts(const ExpertJob& job, int (&experts)[most_one_pairs]) {
  for (int expert = static_cast<int>(threadIdx.x); expert < job.experts; expert += 32 * one_warps) {
    for (int pair = job.starts[expert]; pair < job.starts[expert + 1]; ++pair) experts[pair] = expert;
  }
  __syncthreads();
}

/// A group is rows of one pair's expert; with `Gated` rows of the gate and of the up projection in turn.
template <typename T, int Rows, bool Gated>
struct OneExperts {
  static constexpr int results = Gated ? Rows / 2 : Rows;  // of a group

  const ExpertJob& job;
  const int* experts;
  int groups;  // of an expert
  int row_bytes;
  int x_bytes;  // of a pair's x in shared memory

  __device__ __forceinline__ void find(int group, const std::byte* (&rows)[Rows]) const {
    const int expert = experts[group / groups];
    const int first = group % groups * results;
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      const ExpertPart& part = job.parts[Gated ? r % 2 : 0];
      const int row = min(first + (Gated ? r / 2 : r), part.rows - 1);
      rows[r] = part.data + expert * part.step + int64_t{row} * row_bytes;
    }
  }
  __device__ __forceinline__ int x_at(int group) const { return Gated ? 0 : group / groups * x_bytes; }

  struct Result {
    const OneExperts& work;
    int pair;
    int row;
    RowFactors factors;

    __device__ __forceinline__ Result(const OneExperts& w, int group)
        : work(w),
          pair(group / w.groups),
          row(group % w.groups * results + static_cast<int>(threadIdx.x) % 32),
          factors(w.job.factors(w.experts[pair])) {}

    __device__ __forceinline__ float finished(float sum, int column) const {
      if (factors.scale != nullptr) sum *= factors.scale[column];
      if (factors.bias != nullptr) sum += factors.bias[column];
      return sum;
    }
    __device__ __forceinline__ void put(const float (&totals)[Rows]) const {
      const ExpertPart& part = work.job.parts[0];
      if (static_cast<int>(threadIdx.x) % 32 >= results || row >= part.rows) return;
      float value = finished(own_of<results, Gated ? 2 : 1>(totals), part.first_row + row);
      if constexpr (Gated) {
        const float up = finished(own_of<results, 2, 1>(totals), part.rows + row);
        value = gated_value<T>(value, up, *work.job.gated);
      }
      static_cast<T*>(work.job.y)[pair * work.job.y_stride + part.first_row + row] = from_float<T>(value);
    }
  };
  __device__ __forceinline__ Result result(int group) const { return {*this, group}; }
};

template <typename Format, typename T, bool Gated>
__global__ void __launch_bounds__(32 * one_warps, 2) multiply_one_experts(const __grid_constant__ ExpertJob job) {
  using Work = OneExperts<T, one_expert_rows, Gated>;
  extern __shared__ __align__(128) std::byte x[];
  __shared__ int experts[most_one_pairs];
  allow_next();
  const int row_bytes = static_cast<int>(panel_bytes<Format>(job.cols));
  const int data_bytes = one_data_bytes<Format>(job.cols);
  const int steps = one_steps(data_bytes, one_expert_rows);
  const int groups = (job.parts[0].rows + Work::results - 1) / Work::results;
  const OneShape shape{groups * job.pairs, static_cast<int>(gridDim.x) * one_warps, steps, data_bytes};
  wait_for_previous();
  find_experts(job, experts);
  const Work work{job, experts, groups, row_bytes, one_x_bytes<Format>(steps, one_expert_rows)};
  OneWarp<Format, T, one_expert_rows, Work> warp(work, shape);
  const OneInput<Format, T> input(x, steps * (one_loads / one_expert_rows), job.cols, Gated ? 1 : job.pairs);
  const float back = input.bring(job.x, job.x_stride, true);
  __syncthreads();
  warp.multiply(x, back);
}

template <typename Format, typename T, bool Gated>
void launch_one_experts_of(const Queue& queue, const ExpertJob& job, int shared_bytes) {
  static const bool allowed = allow_shared(multiply_one_experts<Format, T, Gated>, most_one_shared);
  CHECK(allowed && shared_bytes <= most_one_shared);
  launch(queue, multiply_one_experts<Format, T, Gated>, static_cast<unsigned>(native(queue).multiprocessors),
         32 * one_warps, static_cast<size_t>(shared_bytes), job);
}

template <typename Format, typename T>
bool launch_one_experts(const Queue& queue, const ExpertJob& job) {
  const int x_bytes =
      one_x_bytes<Format>(one_steps(one_data_bytes<Format>(job.cols), one_expert_rows), one_expert_rows);
  const int shared_bytes = std::max(lone_bytes(), job.gated ? x_bytes : job.pairs * x_bytes);
  if (job.pairs > most_one_pairs || shared_bytes > most_one_shared) return false;
  if (job.gated)
    launch_one_experts_of<Format, T, true>(queue, job, shared_bytes);
  else
    launch_one_experts_of<Format, T, false>(queue, job, shared_bytes);
  return true;
}

}  // namespace quern::cuda
