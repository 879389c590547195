// The kernel of linear_stream.h. A block takes tiles of 16 rows in turn; the blocks of a cluster share the columns of a
// tile. One warp fetches stages of a tile's columns into the ring, eight multiply them, a unit each in turn, and leave
// their sums with the cluster's first block, where one warp adds them in a fixed order and writes the results.
#pragma once

#include "backend/cuda/barriers.cuh"
#include "backend/cuda/linear_skinny.cuh"
#include "backend/cuda/linear_stream.h"
#include "backend/cuda/linear_stream_integers.cuh"

namespace quern::cuda {

/// What a block works on, and where things lie in its shared memory.
struct StreamPlace {
  const SkinnyJob& job;
  const StreamLaunch& shape;
  unsigned shared;  // its address
  int rank;
  int begin;  // of the units of columns
  int end;

  __device__ StreamPlace(const SkinnyJob& j, const StreamLaunch& s, const void* memory)
      : job(j), shape(s), shared(static_cast<unsigned>(__cvta_generic_to_shared(memory))) {
    rank = static_cast<int>(blockIdx.x) % shape.cluster;
    begin = rank * job.share;
    end = min(begin + job.share, job.units);
  }
  __device__ int first_tile() const { return static_cast<int>(blockIdx.x) / shape.cluster; }
  __device__ int tile_step() const { return static_cast<int>(gridDim.x) / shape.cluster; }
  __device__ int tiles() const { return job.tiles_end[job.parts - 1]; }
  __device__ unsigned full(int stage) const { return shared + 8 * stage; }
  __device__ unsigned empty(int stage) const { return shared + 8 * (most_stream_stages + stage); }
  __device__ unsigned sums_full(int buffer) const { return shared + 8 * (2 * most_stream_stages + buffer); }
  __device__ unsigned sums_empty(int buffer) const { return shared + 8 * (2 * most_stream_stages + 2 + buffer); }
  /// Bytes of one warp's sums of a tile.
  __device__ int warp_bytes() const { return job.tokens * panel_height * 4; }
  __device__ int sums_at(int buffer) const {
    return shape.sums_at + buffer * stream_warps * shape.cluster * warp_bytes();
  }
};

/// A place in the ring that moves on.
struct StreamTurn {
  int stage = 0;
  unsigned phase = 0;

  __device__ __forceinline__ void advance(int stages) {
    if (++stage < stages) return;
    stage = 0;
    phase ^= 1;
  }
};

/// Fetches `units` records of a panel from `first` on.
template <typename Format>
__device__ __forceinline__ void fetch_stage(const SkinnyJob& job, const std::byte* panel, unsigned to, int first,
                                            int units, unsigned barrier) {
  using P = Packed<Format>;
  const unsigned bytes = units * P::record_bytes;
  const unsigned header_bytes = (units + 1) / 2 * panel_height * P::header;
  arrive_expecting(barrier, bytes + header_bytes);
  copy_bytes(to, panel + headers_bytes<Format>(job.cols) + int64_t{first} * P::record_bytes, bytes, barrier);
  if constexpr (P::header > 0) {
    copy_bytes(to + job.headers_at, panel + first / 2 * panel_height * P::header, header_bytes, barrier);
  }
}

/// The warp that fetches: one lane of it.
template <typename Format>
__device__ __forceinline__ void fetch_tiles(const StreamPlace& at) {
  const SkinnyJob& job = at.job;
  StreamTurn turn;
  for (int tile = at.first_tile(); tile < at.tiles(); tile += at.tile_step()) {
    int part = 0;
    while (tile >= job.tiles_end[part]) ++part;
    const int panel = tile - (part == 0 ? 0 : job.tiles_end[part - 1]);
    const std::byte* const data = job.data[part] + panel * panel_bytes<Format>(job.cols);
    for (int first = at.begin; first < at.end; first += at.shape.stage_units) {
      wait_for(at.empty(turn.stage), turn.phase ^ 1);
      fetch_stage<Format>(job, data, at.shared + at.shape.ring_at + turn.stage * at.shape.stage_bytes, first,
                          min(at.shape.stage_units, at.end - first), at.full(turn.stage));
      turn.advance(at.shape.stages);
    }
  }
}

/// The warp that adds what the others left and writes results.
template <typename T>
__device__ __forceinline__ void write_tiles(const StreamPlace& at, const std::byte* shared) {
  if (at.rank != 0) return;
  const int lane = threadIdx.x % 32;
  const int elements = panel_height * at.job.tokens;
  StreamTurn turn;
  for (int tile = at.first_tile(); tile < at.tiles(); tile += at.tile_step()) {
    if (at.shape.cluster == 1) {
      wait_for(at.sums_full(turn.stage), turn.phase);
    } else {
      if (lane == 0) arrive_expecting(at.sums_full(turn.stage), stream_warps * at.shape.cluster * at.warp_bytes());
      wait_for_cluster(at.sums_full(turn.stage), turn.phase);
    }
    const float* const sums = reinterpret_cast<const float*>(shared + at.sums_at(turn.stage));
    for (int element = lane; element < elements; element += 32) {
      float sum = 0.0F;
      for (int warp = 0; warp < stream_warps * at.shape.cluster; ++warp) sum += sums[warp * elements + element];
      put<T>(at.job, {tile, 0, 1}, element % panel_height, element / panel_height, sum);
    }
    __syncwarp();
    if (at.shape.cluster == 1) {
      if (lane == 0) arrive(at.sums_empty(turn.stage));
    } else if (lane < at.shape.cluster) {
      arrive_there(in_block(at.sums_empty(turn.stage), lane));
    }
    turn.advance(2);
  }
}

/// Brings a warp's sums to the cluster's first block.
template <typename Products>
__device__ __forceinline__ void leave_sums(const StreamPlace& at, Products& products, unsigned to, unsigned barrier) {
  if (at.shape.cluster == 1) {
    products.leave(at.job, [&](int place, float sum) { store_here(to + 4 * place, sum); });
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(barrier);
  } else {
    to = in_block(to, 0);
    barrier = in_block(barrier, 0);
    products.leave(at.job, [&](int place, float sum) { store_there(to + 4 * place, sum, barrier); });
  }
}

/// A warp that multiplies.
template <typename Format, typename T, int Tokens>
__device__ __forceinline__ void multiply_stages(const StreamPlace& at, const std::byte* shared) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const std::byte* const x = shared + at.shape.x_at;
  StreamTurn turn;
  StreamTurn sums_turn;
  for (int tile = at.first_tile(); tile < at.tiles(); tile += at.tile_step()) {
    IntegerProducts<Format, T, Tokens> products;
    for (int first = at.begin; first < at.end; first += at.shape.stage_units) {
      wait_for(at.full(turn.stage), turn.phase);
      const std::byte* const stage = shared + at.shape.ring_at + turn.stage * at.shape.stage_bytes;
      const int units = min(at.shape.stage_units, at.end - first);
#pragma unroll 2
      for (int unit = warp; unit < units; unit += stream_warps) {
        products.add(at.job, stage, unit, x, first - at.begin + unit);
      }
      __syncwarp();
      if (lane == 0) arrive(at.empty(turn.stage));
      turn.advance(at.shape.stages);
    }
    wait_for(at.sums_empty(sums_turn.stage), sums_turn.phase ^ 1);
    const int place = at.sums_at(sums_turn.stage) + (at.rank * stream_warps + warp) * at.warp_bytes();
    leave_sums(at, products, at.shared + place, at.sums_full(sums_turn.stage));
    sums_turn.advance(2);
  }
}

/// Few registers: beside this product's block there has to be room for one of attention and for small kernels.
template <typename Format, typename T, int Tokens>
__global__ void __launch_bounds__(stream_threads, 3)
    stream(const __grid_constant__ SkinnyJob job, const __grid_constant__ StreamLaunch shape) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::byte shared[];
  allow_next();
  const StreamPlace at(job, shape, shared);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < shape.stages; ++stage) {
      make_barrier(at.full(stage), 1);
      make_barrier(at.empty(stage), stream_warps);
    }
    for (int buffer = 0; buffer < 2; ++buffer) {
      make_barrier(at.sums_full(buffer), shape.cluster == 1 ? stream_warps : 1);
      make_barrier(at.sums_empty(buffer), 1);
    }
    show_barriers();
  }
  __syncthreads();
  const bool clustered = shape.cluster > 1;
  if (clustered) enter_cluster();
  const int warp = threadIdx.x / 32;
  if (warp > stream_warps) {
    if (threadIdx.x % 32 == 0) fetch_tiles<Format>(at);
    __syncwarp();
    if (clustered) join_cluster();
  } else {
    wait_for_previous();
    if (clustered) join_cluster();
    if (warp == stream_warps) {
      write_tiles<T>(at, shared);
    } else {
      IntegerProducts<Format, T, Tokens>::stage_x(job, shared + shape.x_at, at.begin, at.end - at.begin);
      sync_threads(1, 32 * stream_warps);
      multiply_stages<Format, T, Tokens>(at, shared);
    }
    __syncwarp();
  }
  if (clustered) {  // no block ends before its memory is needed no more
    enter_cluster();
    join_cluster();
  }
#endif
}

template <typename Format, typename T, int Tokens>
void launch_stream_of(const Queue& queue, const SkinnyJob& job, const StreamLaunch& shape) {
  constexpr int most_shared = 224 << 10;
  static const bool allowed = allow_shared(stream<Format, T, Tokens>, most_shared);
  CHECK(allowed && shape.shared_bytes <= most_shared);
  const auto shared_bytes = static_cast<size_t>(shape.shared_bytes);
  launch_blocks(
      queue, stream<Format, T, Tokens>,
      {static_cast<unsigned>(shape.blocks), stream_threads, shared_bytes, static_cast<unsigned>(shape.cluster)}, job,
      shape);
}

template <typename Format, typename T>
void launch_stream(const Queue& queue, const SkinnyJob& job, const StreamLaunch& shape) {
  if (job.tokens <= 1) return launch_stream_of<Format, T, 1>(queue, job, shape);
  if (job.tokens <= 2) return launch_stream_of<Format, T, 2>(queue, job, shape);
  launch_stream_of<Format, T, stream_tokens>(queue, job, shape);
}

}  // namespace quern::cuda
