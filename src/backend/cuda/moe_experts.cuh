// The kernel of moe_experts.h. A block takes 16 * row_groups rows of one expert; the warps of a row group take turns
// with the units of its columns, and their sums are added in a fixed order, so that a pair's result depends on itself
// only.
#pragma once

#include "backend/cuda/linear_skinny.cuh"
#include "backend/cuda/moe_experts.h"

namespace quern::cuda {

/// The rows of a warp.
template <typename Format, typename T>
struct ExpertRows {
  using Unit = std::conditional_t<is_float<Format>, FloatUnit<T>, Unit<Format, T>>;
  const std::byte* rows[is_float<Format> ? 2 : 1];  // of this lane, or the panel
  int cols;

  __device__ ExpertRows(const std::byte* data, int row, int last, int columns) : cols(columns) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    if constexpr (is_float<Format>) {
      rows[0] = data + min(row + lane / 4, last) * panel_bytes<Format>(cols);
      rows[1] = data + min(row + 8 + lane / 4, last) * panel_bytes<Format>(cols);
    } else {
      rows[0] = data + min(row, last) / panel_height * panel_bytes<Format>(cols);
    }
  }

  __device__ __forceinline__ void load(Unit& unit, int number, int part) const {
    if (number * Unit::columns >= cols) return;
    const int lane = static_cast<int>(threadIdx.x % 32);
    if constexpr (is_float<Format>) {
      const int column = number * Unit::columns + 32 * part + 8 * (lane % 4);
      unit.words[part][0] = stream16(rows[0] + 2 * column);
      unit.words[part][1] = stream16(rows[1] + 2 * column);
    } else {
      using P = Packed<Format>;
      const std::byte* const records = rows[0] + headers_bytes<Format>(cols);
      unit.load(records + int64_t{number} * P::record_bytes, rows[0] + number / 2 * panel_height * P::header, lane);
    }
  }
};

/// Adds what the warps of each row group have and writes it.
template <typename T, int TokenTiles>
__device__ __forceinline__ void write_pairs(const ExpertJob& job, const ExpertPart& part, int row, int pair, int pairs,
                                            const float* bias, const float (&sums)[TokenTiles][4]) {
  __shared__ float shared[expert_warps][8 * TokenTiles][sums_pitch];
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int n = 0; n < TokenTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      shared[threadIdx.x / 32][8 * n + 2 * (lane % 4) + i % 2][lane / 4 + 8 * (i / 2)] = sums[n][i];
    }
  }
  __syncthreads();
  const int turns = expert_warps / job.row_groups;
  const int rows = panel_height * job.row_groups;
  for (int element = threadIdx.x; element < rows * pairs; element += 32 * expert_warps) {
    const int in_tile = element % rows;
    const int token = element / rows;
    if (row + in_tile >= part.rows) continue;
    float sum = 0.0F;
    for (int turn = 0; turn < turns; ++turn) {
      sum += shared[in_tile / panel_height * turns + turn][token][in_tile % panel_height];
    }
    const int column = part.first_row + row + in_tile;
    if (bias != nullptr) sum += bias[column];
    static_cast<T*>(job.y)[(pair + token) * job.y_stride + column] = from_float<T>(sum);
  }
  __syncthreads();
}

template <typename Format, typename T, int TokenTiles>
__global__ void __launch_bounds__(32 * expert_warps, TokenTiles <= 4 ? 2 : 1)
    multiply_experts(const __grid_constant__ ExpertJob job, int tiles) {
  using Rows = ExpertRows<Format, T>;
  using Unit = typename Rows::Unit;
  constexpr int ahead =
      is_float<Format> || Packed<std::conditional_t<is_float<Format>, Q4_0, Format>>::low == 2 ? 4 : 2;
  allow_next();
  const int tile = static_cast<int>(blockIdx.x) % tiles;
  const ExpertPart& part = job.parts[part_of_tile(job, tile)];
  const int first_tile = &part == job.parts ? 0 : (&part)[-1].tiles_end;
  const int row = (tile - first_tile) * job.row_groups * panel_height;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int turns = expert_warps / job.row_groups;
  const int turn = warp % turns;
  const int units = job.cols / Unit::columns;
  const int64_t x_bytes = job.x_stride * static_cast<int64_t>(sizeof(T));

  wait_for_previous();
  const int expert = expert_of_slot(job.starts, job.experts, static_cast<int>(blockIdx.x) / tiles);
  if (expert < 0) return;
  const Rows rows(part.data + expert * part.step, row + warp / turns * panel_height, part.rows - 1, job.cols);
  const float* const bias = job.bias == nullptr ? nullptr : job.bias + expert * job.bias_step;
  const int end = job.starts[expert + 1];
  for (int pair = job.starts[expert]; pair < end; pair += 8 * TokenTiles) {
    Unit ring[ahead];
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
#pragma unroll
      for (int half = 0; half < Unit::parts; ++half) rows.load(ring[i], turn + i * turns, half);
    }
    const int pairs = min(end - pair, 8 * TokenTiles);
    const auto* const x = static_cast<const std::byte*>(job.x) + pair * x_bytes;
    int tokens[TokenTiles];
#pragma unroll
    for (int n = 0; n < TokenTiles; ++n) {
      tokens[n] = min(8 * n + static_cast<int>(threadIdx.x % 32 / 4), pairs - 1) * static_cast<int>(x_bytes);
    }
    float sums[TokenTiles][4] = {};
    for (int first = turn; first < units; first += ahead * turns) {
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        const int unit = first + i * turns;
#pragma unroll
        for (int half = 0; half < Unit::parts; ++half) {
          if (unit < units) use<Format, T, TokenTiles>(sums, ring[i], half, x + unit * Unit::columns * 2, tokens);
          rows.load(ring[i], unit + ahead * turns, half);
        }
      }
    }
    write_pairs<T, TokenTiles>(job, part, row, pair, pairs, bias, sums);
  }
}

/// With a batch-invariant queue the warps share columns by their number alone.
template <typename Format, typename T>
void launch_experts(const Queue& queue, ExpertJob job, int pairs) {
  const int units = job.cols / ExpertRows<Format, T>::Unit::columns;
  job.row_groups = units >= 32 ? 1 : units >= 16 ? 2 : units >= 8 ? 4 : 8;
  if (!queue.batch_invariant && pairs > 8) job.row_groups = 8;
  int tiles = 0;
  for (ExpertPart& part : job.parts) {
    tiles += (part.rows + panel_height * job.row_groups - 1) / (panel_height * job.row_groups);
    part.tiles_end = tiles;
  }
  const auto kernel = pairs <= 8    ? multiply_experts<Format, T, 1>
                      : pairs <= 32 ? multiply_experts<Format, T, 4>
                                    : multiply_experts<Format, T, 8>;
  launch(queue, kernel, static_cast<unsigned>(tiles * job.slots), 32 * expert_warps, 0, job, tiles);
}

}  // namespace quern::cuda
