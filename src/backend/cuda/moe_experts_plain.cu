// The experts' products in floats: the reference on the GPU, and the way of types and sizes that the matrix units do
// not take. A result depends on its own pair only.
#include "backend/cuda/moe_experts.h"
#include "backend/cuda/packed.cuh"

namespace quern::cuda {
namespace {

constexpr int tile = 4;  // pairs

/// One warp for a row, which goes through the pairs of its expert; lanes take eight columns in turn.
template <typename Format, typename T>
__global__ void __launch_bounds__(32 * expert_warps) multiply_rows(const __grid_constant__ ExpertJob job, int tiles) {
  allow_next();
  wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int expert = expert_of_slot(job.starts, job.experts, static_cast<int>(blockIdx.x) / tiles);
  if (expert < 0) return;
  const int in_expert = static_cast<int>(blockIdx.x) % tiles;
  const ExpertPart& part = job.parts[part_of_tile(job, in_expert)];
  const int first_tile = &part == job.parts ? 0 : (&part)[-1].tiles_end;
  const int row = (in_expert - first_tile) * expert_warps + static_cast<int>(threadIdx.x / 32);
  if (row >= part.rows) return;
  const std::byte* const data = part.data + expert * part.step;
  const int column = part.first_row + row;
  const RowFactors factors = job.factors(expert);
  const int end = job.starts[expert + 1];
  for (int first = job.starts[expert]; first < end; first += tile) {
    float sums[tile] = {};
    int64_t inputs[tile];
#pragma unroll
    for (int t = 0; t < tile; ++t) inputs[t] = input_of(job, min(first + t, end - 1));
    for (int eighth = lane; eighth < job.cols / 8; eighth += 32) {
      const Eight w = decode_packed<Format>(data, job.cols, row, eighth);
#pragma unroll
      for (int t = 0; t < tile; ++t) {
        const T* const x = static_cast<const T*>(job.x) + inputs[t] * job.x_stride + 8 * eighth;
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[t] = fmaf(w.v[i], to_float(x[i]), sums[t]);
      }
    }
#pragma unroll
    for (int t = 0; t < tile; ++t) {
      float sum = warp_sum(sums[t]);
      if (factors.scale != nullptr) sum *= factors.scale[column];
      if (factors.bias != nullptr) sum += factors.bias[column];
      if (lane == 0 && first + t < end) {
        static_cast<T*>(job.y)[(first + t) * job.y_stride + column] = from_float<T>(sum);
      }
    }
  }
}

}  // namespace

void launch_plain_experts(const Queue& queue, FormatId format, Dtype activations, const ExpertJob& job) {
  ExpertJob with_tiles = job;
  int tiles = 0;
  for (ExpertPart& part : with_tiles.parts) {
    tiles += (part.rows + expert_warps - 1) / expert_warps;
    part.tiles_end = tiles;
  }
  visit_activation(activations, [&]<typename T>(T) {
    visit_format(format, [&]<typename Format>(Format) {
      launch(queue, multiply_rows<Format, T>, static_cast<unsigned>(tiles * job.slots), 32 * expert_warps, 0,
             with_tiles, tiles);
    });
  });
}

}  // namespace quern::cuda
