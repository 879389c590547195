// The kernel of moe_experts.h. A block takes 16 * row_groups rows of one expert; the warps of a row group take turns
// with the units of its columns, and their sums are added in a fixed order, so that a pair's result depends on itself
// only.
#pragma once

#include "backend/cuda/activation.cuh"
#include "backend/cuda/linear_skinny.cuh"
#include "backend/cuda/moe_experts.h"

namespace quern::cuda {

/// How many units a warp has under way; sums of many tokens need the registers.
template <typename Format, int TokenTiles>
constexpr int expert_units_ahead() {
  if constexpr (in_rows<Format>)
    return TokenTiles == 1 ? 4 : 2;
  else
    return TokenTiles == 1 && Packed<Format>::low == 2 ? 4 : 2;
}

/// The rows of a warp.
template <typename Format, typename T>
struct ExpertRows {
  using Unit = typename UnitOf<Format, T>::type;
  const std::byte* rows[in_rows<Format> ? 2 : 1];  // of this lane, or the panel
  int cols;

  __device__ ExpertRows(const std::byte* data, int row, int last, int columns) : cols(columns) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    if constexpr (in_rows<Format>) {
      rows[0] = data + min(row + lane / 4, last) * panel_bytes<Format>(cols);
      rows[1] = data + min(row + 8 + lane / 4, last) * panel_bytes<Format>(cols);
    } else {
      rows[0] = data + min(row, last) / panel_height * panel_bytes<Format>(cols);
    }
  }

  __device__ __forceinline__ void load(Unit& unit, int number, int part) const {
    if (number * Unit::columns >= cols) return;
    const int lane = static_cast<int>(threadIdx.x % 32);
    if constexpr (in_rows<Format>) {
      load_from_rows<Format>(unit, rows, number, part, cols);
    } else {
      using P = Packed<Format>;
      const std::byte* const records = rows[0] + headers_bytes<Format>(cols);
      unit.load(records + int64_t{number} * P::record_bytes, rows[0] + number / 2 * panel_height * P::header, lane);
    }
  }
};

/// Where the rows of x are that a lane's tokens read, in bytes.
template <typename T, int TokenTiles>
__device__ __forceinline__ void find_inputs(const ExpertJob& job, int pair, int pairs, int (&tokens)[TokenTiles]) {
#pragma unroll
  for (int n = 0; n < TokenTiles; ++n) {
    const int in_tile = min(8 * n + static_cast<int>(threadIdx.x % 32 / 4), pairs - 1);
    tokens[n] = static_cast<int>(input_of(job, pair + in_tile) * job.x_stride * static_cast<int64_t>(sizeof(T)));
  }
}

/// Multiplies what was fetched of a unit, if there is such a unit, and fetches the one `step` units on in its place.
template <typename Format, typename T, int TokenTiles, typename Unit>
__device__ __forceinline__ void use_and_load(const ExpertRows<Format, T>& rows, Unit& fetched, int unit, int units,
                                             int step, const std::byte* x, const int (&tokens)[TokenTiles],
                                             float (&sums)[TokenTiles][4]) {
#pragma unroll
  for (int half = 0; half < Unit::parts; ++half) {
    if (unit < units) use<Format, T, TokenTiles>(sums, fetched, half, x + unit * Unit::columns * 2, tokens);
    rows.load(fetched, unit + step, half);
  }
}

/// Adds what the warps of each row group have and writes it.
template <typename T, int TokenTiles>
__device__ __forceinline__ void write_pairs(const ExpertJob& job, const ExpertPart& part, int row, int pair, int pairs,
                                            RowFactors factors, const float (&sums)[TokenTiles][4]) {
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
    if (factors.scale != nullptr) sum *= factors.scale[column];
    if (factors.bias != nullptr) sum += factors.bias[column];
    static_cast<T*>(job.y)[(pair + token) * job.y_stride + column] = from_float<T>(sum);
  }
  __syncthreads();
}

template <typename Format, typename T, int TokenTiles>
__global__ void __launch_bounds__(32 * expert_warps, TokenTiles <= 4 ? 2 : 1)
    multiply_experts(const __grid_constant__ ExpertJob job, int tiles) {
  using Rows = ExpertRows<Format, T>;
  using Unit = typename Rows::Unit;
  constexpr int ahead = expert_units_ahead<Format, TokenTiles>();
  allow_next();
  const int tile = static_cast<int>(blockIdx.x) % tiles;
  const ExpertPart& part = job.parts[part_of_tile(job, tile)];
  const int first_tile = &part == job.parts ? 0 : (&part)[-1].tiles_end;
  const int row = (tile - first_tile) * job.row_groups * panel_height;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int turns = expert_warps / job.row_groups;
  const int turn = warp % turns;
  const int units = job.cols / Unit::columns;

  wait_for_previous();
  const int expert = expert_of_slot(job.starts, job.experts, static_cast<int>(blockIdx.x) / tiles);
  if (expert < 0) return;
  const Rows rows(part.data + expert * part.step, row + warp / turns * panel_height, part.rows - 1, job.cols);
  const RowFactors factors = job.factors(expert);
  const int end = job.starts[expert + 1];
  for (int pair = job.starts[expert]; pair < end; pair += 8 * TokenTiles) {
    Unit ring[ahead];
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
#pragma unroll
      for (int half = 0; half < Unit::parts; ++half) rows.load(ring[i], turn + i * turns, half);
    }
    const int pairs = min(end - pair, 8 * TokenTiles);
    const auto* const x = static_cast<const std::byte*>(job.x);
    int tokens[TokenTiles];
    find_inputs<T>(job, pair, pairs, tokens);
    float sums[TokenTiles][4] = {};
    for (int first = turn; first < units; first += ahead * turns) {
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        use_and_load<Format, T>(rows, ring[i], first + i * turns, units, ahead * turns, x, tokens, sums);
      }
    }
    write_pairs<T, TokenTiles>(job, part, row, pair, pairs, factors, sums);
  }
}

/// The same of a gate and an up projection.
template <typename T, int TokenTiles>
__device__ __forceinline__ void write_gated(const ExpertJob& job, int row, int pair, int pairs, RowFactors factors,
                                            const float (&sums)[2][TokenTiles][4]) {
  __shared__ float shared[2][expert_warps][8 * TokenTiles][sums_pitch];
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int part = 0; part < 2; ++part) {
#pragma unroll
    for (int n = 0; n < TokenTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        shared[part][threadIdx.x / 32][8 * n + 2 * (lane % 4) + i % 2][lane / 4 + 8 * (i / 2)] = sums[part][n][i];
      }
    }
  }
  __syncthreads();
  const int turns = expert_warps / job.row_groups;
  const int rows = panel_height * job.row_groups;
  const int hidden = job.parts[0].rows;
  for (int element = threadIdx.x; element < rows * pairs; element += 32 * expert_warps) {
    const int in_tile = element % rows;
    const int token = element / rows;
    const int column = row + in_tile;
    if (column >= hidden) continue;
    float results[2] = {};
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      for (int turn = 0; turn < turns; ++turn) {
        results[part] += shared[part][in_tile / panel_height * turns + turn][token][in_tile % panel_height];
      }
      if (factors.scale != nullptr) results[part] *= factors.scale[part * hidden + column];
      if (factors.bias != nullptr) results[part] += factors.bias[part * hidden + column];
    }
    static_cast<T*>(job.y)[(pair + token) * job.y_stride + column] =
        from_float<T>(gated_value<T>(results[0], results[1], *job.gated));
  }
  __syncthreads();
}

/// Asks for a tile's share of what the expert's pairs are multiplied with after this.
__device__ __forceinline__ void prefetch_next(const ExpertJob& job, int expert, int tile, int tiles) {
  constexpr int piece = 4096;
  const int64_t share = (job.next_bytes / tiles + piece) / piece * piece;
  const int64_t end = min((tile + 1) * share, job.next_bytes);
  const std::byte* const data = job.next + expert * job.next_step;
  for (int64_t at = tile * share + int64_t{threadIdx.x} * piece; at < end; at += int64_t{blockDim.x} * piece) {
    prefetch_to_l2(data + at, static_cast<int>(min(end - at, int64_t{piece})));
  }
}

/// A tile is the same rows of the gate and of the up projection, whose units are read in turn.
template <typename Format, typename T, int TokenTiles>
__global__ void __launch_bounds__(32 * expert_warps, TokenTiles == 1 ? 3 : 2)
    multiply_gated(const __grid_constant__ ExpertJob job, int tiles) {
  using Rows = ExpertRows<Format, T>;
  using Unit = typename Rows::Unit;
  constexpr int ahead = 2;  // so that three blocks fit: of few tokens, all are under way at once
  allow_next();
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int turns = expert_warps / job.row_groups;
  const int turn = warp % turns;
  const int units = job.cols / Unit::columns;
  const int row = static_cast<int>(blockIdx.x) % tiles * job.row_groups * panel_height;

  wait_for_previous();
  const int expert = expert_of_slot(job.starts, job.experts, static_cast<int>(blockIdx.x) / tiles);
  if (expert < 0) return;
  const int in_part = row + warp / turns * panel_height;
  const Rows rows[2] = {{job.parts[0].data + expert * job.parts[0].step, in_part, job.parts[0].rows - 1, job.cols},
                        {job.parts[1].data + expert * job.parts[1].step, in_part, job.parts[1].rows - 1, job.cols}};
  const RowFactors factors = job.factors(expert);
  const int end = job.starts[expert + 1];
  for (int pair = job.starts[expert]; pair < end; pair += 8 * TokenTiles) {
    Unit ring[ahead];
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
#pragma unroll
      for (int half = 0; half < Unit::parts; ++half) rows[i % 2].load(ring[i], turn + i / 2 * turns, half);
    }
    const int pairs = min(end - pair, 8 * TokenTiles);
    const auto* const x = static_cast<const std::byte*>(job.x);
    int tokens[TokenTiles];
    find_inputs<T>(job, pair, pairs, tokens);
    float sums[2][TokenTiles][4] = {};
    for (int first = turn; first < units; first += ahead / 2 * turns) {
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        use_and_load<Format, T>(rows[i % 2], ring[i], first + i / 2 * turns, units, ahead / 2 * turns, x, tokens,
                                sums[i % 2]);
      }
    }
    if (job.next != nullptr && pair == job.starts[expert]) {
      prefetch_next(job, expert, static_cast<int>(blockIdx.x) % tiles, tiles);
    }
    write_gated<T, TokenTiles>(job, row, pair, pairs, factors, sums);
  }
}

/// With a batch-invariant queue the warps share columns by their number alone.
template <typename Format, typename T>
void launch_experts(const Queue& queue, ExpertJob job, int pairs) {
  const int units = job.cols / ExpertRows<Format, T>::Unit::columns;
  job.row_groups = units >= 32 ? 1 : units >= 16 ? 2 : units >= 8 ? 4 : 8;
  if (!queue.batch_invariant && pairs > 8) job.row_groups = 8;
  if (job.gated) {
    const int rows = panel_height * job.row_groups;
    const int tiles = (job.parts[0].rows + rows - 1) / rows;
    const auto kernel = pairs <= 8 ? multiply_gated<Format, T, 1> : multiply_gated<Format, T, 4>;
    return launch(queue, kernel, static_cast<unsigned>(tiles * job.slots), 32 * expert_warps, 0, job, tiles);
  }
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
