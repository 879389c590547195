// Experts with many pairs each: tiles of 128 pairs x 128 rows on the matrix units, inputs and weights of one half type
// coming through shared memory. With gate and up projections a tile is 64 rows of each.
#include "backend/cuda/activation.cuh"
#include "backend/cuda/linear_unpack.cuh"
#include "backend/cuda/moe_experts.h"

namespace quern::cuda {
namespace {

constexpr int threads = 256;  // warps are 2 (pairs) x 4 (rows)
constexpr int tile_pairs = 128;
constexpr int tile_rows = 128;
constexpr int tile_columns = 64;  // 128 bytes
constexpr int stages = 3;
constexpr int half_stage_bytes = 128 * tile_columns * 2;  // inputs, then weights
constexpr int shared_bytes = stages * 2 * half_stage_bytes;

/// Some of an expert's pairs.
struct PairTile {
  int expert = -1;
  int first = 0;
  int end = 0;  // of the expert
};

/// The tile of this number, counted through all experts. For whole warps.
__device__ __forceinline__ PairTile find_pairs(const int32_t* starts, int experts, int number) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int first = 0; first < experts; first += 32) {
    const int e = first + lane;
    const int begin = e < experts ? starts[e] : 0;
    const int end = e < experts ? starts[e + 1] : 0;
    const int tiles = (end - begin + tile_pairs - 1) / tile_pairs;
    int through = tiles;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFFU, through, step);
      if (lane >= step) through += other;
    }
    const bool mine = number < through && number >= through - tiles;
    const unsigned found = __ballot_sync(0xFFFFFFFFU, mine);
    const int source = found != 0 ? __ffs(static_cast<int>(found)) - 1 : 31;
    const int before = __shfl_sync(0xFFFFFFFFU, found != 0 ? through - tiles : through, source);
    if (found == 0) {
      number -= before;
      continue;
    }
    const int expert_begin = __shfl_sync(0xFFFFFFFFU, begin, source);
    const int expert_end = __shfl_sync(0xFFFFFFFFU, end, source);
    return {first + source, expert_begin + (number - before) * tile_pairs, expert_end};
  }
  return {};
}

__device__ __forceinline__ void copy16(uint32_t to, const std::byte* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}
/// Rows of 128 bytes, whose chunks are swapped so that eight rows' same chunk lies in different banks.
__device__ __forceinline__ uint32_t chunk_at(int row, int chunk) {
  return static_cast<uint32_t>(row * 128 + (chunk ^ row % 8) * 16);
}

/// What a thread copies: a chunk of 16 bytes of every 32nd row.
struct Copies {
  const std::byte* inputs[4];
  const std::byte* weights[4];

  /// Asks for columns [column, column + tile_columns).
  __device__ __forceinline__ void start(uint32_t stage, int column) const {
    const int row = static_cast<int>(threadIdx.x / 8);
    const int chunk = static_cast<int>(threadIdx.x % 8);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t at = stage + chunk_at(row + 32 * i, chunk);
      copy16(at, inputs[i] + 2 * column);
      copy16(at + half_stage_bytes, weights[i] + 2 * column);
    }
  }
};

/// Where the rows of a tile lie in the weights and in y.
template <bool gated>
struct RowTile {
  const ExpertPart* part;
  int row;  // of the part

  __device__ RowTile(const ExpertJob& job, int tile) {
    const int number = gated ? 0 : part_of_tile(job, tile);
    part = job.parts + number;
    row = gated ? tile * tile_rows / 2 : (tile - (number == 0 ? 0 : part[-1].tiles_end)) * tile_rows;
  }
  __device__ __forceinline__ const std::byte* weights(const ExpertJob& job, int expert, int in_tile) const {
    const ExpertPart& from = gated && in_tile >= tile_rows / 2 ? job.parts[1] : *part;
    const int at = min(row + (gated ? in_tile % (tile_rows / 2) : in_tile), from.rows - 1);
    return from.data + expert * from.step + int64_t{at} * job.cols * 2;
  }
};

/// The 16 rows of a tile that a warp takes as its first or second pair of operands.
template <bool gated>
__device__ __forceinline__ int rows_of_warp(int pair) {
  const int column = static_cast<int>(threadIdx.x / 32 % 4);
  return gated ? column * 16 + pair * (tile_rows / 2) : column * 32 + pair * 16;
}

/// sums[m][n] += 16 x 8 products of one stage; n: two of each pair of operands.
template <bool gated, typename T>
__device__ __forceinline__ void multiply_stage(float (&sums)[4][4][4], uint32_t stage) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int first_pair = static_cast<int>(threadIdx.x / 128) * 64;
#pragma unroll
  for (int k = 0; k < tile_columns / 16; ++k) {
    uint32_t b[2][4];
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const int row = rows_of_warp<gated>(pair) + lane % 8 + lane / 16 * 8;
      load_matrices(b[pair], stage + half_stage_bytes + chunk_at(row, 2 * k + lane / 8 % 2));
    }
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      uint32_t a[4];
      load_matrices(a, stage + chunk_at(first_pair + 16 * m + lane % 16, 2 * k + lane / 16));
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        multiply<T>(sums[m][n], a[0], a[1], a[2], a[3], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
      }
    }
  }
}

__device__ __forceinline__ float with_factors(float sum, RowFactors factors, int column) {
  if (factors.scale != nullptr) sum *= factors.scale[column];
  if (factors.bias != nullptr) sum += factors.bias[column];
  return sum;
}

template <bool gated, typename T>
__device__ __forceinline__ void write_tile(const ExpertJob& job, const RowTile<gated>& rows, const PairTile& pairs,
                                           const float (&sums)[4][4][4]) {
  const RowFactors factors = job.factors(pairs.expert);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int first_pair = pairs.first + static_cast<int>(threadIdx.x / 128) * 64 + lane / 4;
#pragma unroll
  for (int n = 0; n < (gated ? 2 : 4); ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = rows.row + rows_of_warp<gated>(n / 2) + n % 2 * 8 + 2 * (lane % 4) + i % 2;
      if (row >= rows.part->rows) continue;
      const int column = rows.part->first_row + row;
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const int pair = first_pair + 16 * m + i / 2 * 8;
        if (pair >= pairs.end) continue;
        float result = with_factors(sums[m][n][i], factors, column);
        if constexpr (gated) {
          const float up = with_factors(sums[m][n + 2][i], factors, job.parts[1].first_row + row);
          result = gated_value<T>(result, up, *job.gated);
        }
        static_cast<T*>(job.y)[pair * job.y_stride + column] = from_float<T>(result);
      }
    }
  }
}

template <bool gated, typename T>
__global__ void __launch_bounds__(threads, 2) multiply_tiles(const __grid_constant__ ExpertJob job, int tiles) {
  extern __shared__ __align__(128) std::byte shared[];
  allow_next();
  const RowTile<gated> rows(job, static_cast<int>(blockIdx.x) % tiles);
  const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  wait_for_previous();
  const PairTile pairs = find_pairs(job.starts, job.experts, static_cast<int>(blockIdx.x) / tiles);
  if (pairs.expert < 0) return;
  Copies copies;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = static_cast<int>(threadIdx.x / 8) + 32 * i;
    const int chunk = static_cast<int>(threadIdx.x % 8) * 16;
    const int64_t input = input_of(job, min(pairs.first + row, pairs.end - 1));
    copies.inputs[i] = static_cast<const std::byte*>(job.x) + input * job.x_stride * 2 + chunk;
    copies.weights[i] = rows.weights(job, pairs.expert, row) + chunk;
  }
  const int steps = job.cols / tile_columns;
#pragma unroll
  for (int step = 0; step < stages - 1; ++step) {
    if (step < steps) copies.start(base + step * 2 * half_stage_bytes, step * tile_columns);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  float sums[4][4][4] = {};
  int reading = 0;
  int writing = stages - 1;
  for (int step = 0; step < steps; ++step) {
    asm volatile("cp.async.wait_group %0;" ::"n"(stages - 2) : "memory");
    __syncthreads();
    const int next = step + stages - 1;
    if (next < steps) copies.start(base + writing * 2 * half_stage_bytes, next * tile_columns);
    asm volatile("cp.async.commit_group;" ::: "memory");
    multiply_stage<gated, T>(sums, base + reading * 2 * half_stage_bytes);
    reading = reading + 1 == stages ? 0 : reading + 1;
    writing = writing + 1 == stages ? 0 : writing + 1;
  }
  write_tile<gated, T>(job, rows, pairs, sums);
}

template <bool gated, typename T>
void launch_tiles(const Queue& queue, ExpertJob job) {
  static const bool allowed = allow_shared(multiply_tiles<gated, T>, shared_bytes);
  CHECK(allowed);
  int tiles = 0;
  for (ExpertPart& part : job.parts) {
    tiles += (part.rows + tile_rows - 1) / tile_rows;
    part.tiles_end = tiles;
  }
  if (gated) tiles = (job.parts[0].rows + tile_rows / 2 - 1) / (tile_rows / 2);
  const int pair_tiles = job.pairs / tile_pairs + job.slots;  // no routing makes more
  launch(queue, multiply_tiles<gated, T>, static_cast<unsigned>(tiles * pair_tiles), threads, shared_bytes, job, tiles);
}

}  // namespace

template <typename T>
void launch_expert_tiles(const Queue& queue, const ExpertJob& job) {
  if (job.gated) return launch_tiles<true, T>(queue, job);
  launch_tiles<false, T>(queue, job);
}
template void launch_expert_tiles<Half>(const Queue& queue, const ExpertJob& job);
template void launch_expert_tiles<Bf16>(const Queue& queue, const ExpertJob& job);

}  // namespace quern::cuda
