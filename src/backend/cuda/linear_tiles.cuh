// The kernel of linear_tiles.h. A block on each SM takes tiles of up to 128 rows of the weight in turn, or the blocks
// of a cluster share the columns of each: block r has the slices of 128 bytes r, r + cluster, ... One warp fetches
// slices of the weight into a ring in shared memory, one those of x into another; two warpgroups multiply 64
// rows each, the rows of the weight as the instructions' rows and tokens as their columns. The sums of a cluster are
// sent in units of 16 rows and eight tokens to the block that adds them, always in the same order.
#pragma once

#include <cuda.h>

#include "backend/cuda/linear_tiles.h"
#include "backend/cuda/vectors.h"
#include "backend/cuda/warpgroup.cuh"

namespace quern::cuda {

inline constexpr int tiles_warps = 8;  // that multiply
inline constexpr int tiles_threads = 32 * (tiles_warps + 2);
/// Registers are those of so many threads, so that blocks of small kernels have some beside.
template <int Tokens>
inline constexpr int tiles_register_threads = Tokens <= 64 ? 512 : tiles_threads;
inline constexpr int tiles_panel = 64;  // rows of a warpgroup
inline constexpr int most_tile_height = 2 * tiles_panel;
inline constexpr int slice_bytes = 128;      // of each row
inline constexpr int sums_unit_bytes = 512;  // of 16 rows and eight tokens
inline constexpr int most_tiles_cluster = 8;
inline constexpr int most_tiles_stages = 32;
inline constexpr int most_x_places = 32;
inline constexpr int tiles_barriers = 2 * (1 + most_tiles_stages + most_x_places);

struct TilesJob {
  int32_t rows;
  int32_t tokens;
  int32_t tiles;
  int32_t height;  // of a tile, a multiple of 16
  int32_t slices;
  int32_t cluster;
  int32_t stages;       // of the weight's ring
  int32_t x_places;     // of x's
  bool x_stays;         // as it has a place for each slice of a block
  bool accumulate;      // of floats only
  bool floats;          // results: f32, or 16 bits
  int32_t row_units;    // of sums in a tile
  int32_t share_tiles;  // of eight tokens, whose sums a block of a cluster adds
  int32_t ring_at;
  int32_t sums_at;
  int32_t scales_at;
  int32_t barriers_at;
  int64_t y_stride;
  void* y;
  const float* x_scales;  // or null
  const float* w_scales;  // or null
  const float* bias;      // or null
};

/// What a row's sums are multiplied with before its bias is added.
struct TilesRow {
  float scale;
  float bias;
};

#ifdef __CUDACC__
/// What a block works on and where it keeps it.
template <int Tokens>
struct TilesPlace {
  static constexpr int x_bytes = Tokens * slice_bytes;

  const TilesJob& job;
  unsigned shared;
  int rank;  // in the cluster
  int first_tile;
  int tile_step;

  __device__ TilesPlace(const TilesJob& all, const std::byte* memory)
      : job(all),
        shared(shared_address(memory)),
        rank(blockIdx.x % all.cluster),
        first_tile(blockIdx.x / all.cluster),
        tile_step(gridDim.x / all.cluster) {}

  __device__ int stage_bytes() const { return job.height * slice_bytes; }
  __device__ unsigned x_at(int place) const { return shared + place * x_bytes; }
  __device__ unsigned stage_at(int stage) const { return shared + job.ring_at + stage * stage_bytes(); }
  /// A unit that block `from` sends: a tile of tokens in this block's share, and rows.
  __device__ unsigned sums_at(int from, int token_tile, int row_unit) const {
    return shared + job.sums_at + ((from * job.share_tiles + token_tile) * job.row_units + row_unit) * sums_unit_bytes;
  }
  __device__ unsigned barrier(int number) const { return shared + job.barriers_at + 8 * number; }
  __device__ unsigned sums_full() const { return barrier(0); }
  __device__ unsigned sums_empty() const { return barrier(1); }
  __device__ unsigned full(int stage) const { return barrier(2 + 2 * stage); }
  __device__ unsigned empty(int stage) const { return barrier(3 + 2 * stage); }
  __device__ unsigned x_full(int place) const { return full(most_tiles_stages + place); }
  __device__ unsigned x_empty(int place) const { return empty(most_tiles_stages + place); }

  /// All threads together.
  __device__ void make_barriers() const {
    const int multiplying_warps = job.height > tiles_panel ? tiles_warps : tiles_warps / 2;
    for (int number = threadIdx.x; number < tiles_barriers; number += tiles_threads) {
      const int arrivals = number % 2 == 0 ? 1 : number == 1 ? job.cluster * tiles_warps : multiplying_warps;
      make_barrier(barrier(number), arrivals);
    }
    show_barriers();
  }
};

/// A place in a ring and how often it was passed.
struct RingPlace {
  int place = 0;
  unsigned parity = 0;

  __device__ __forceinline__ void advance(int places) {
    if (++place < places) return;
    place = 0;
    parity ^= 1;
  }
};

/// Calls fetch(slice, tile, place in a ring of so many, parity of its last use) for the block's slices, those of the
/// first tile only if `once`.
template <int Tokens, typename Fetch>
__device__ __forceinline__ void fetch_slices(const TilesPlace<Tokens>& at, int places, bool once, const Fetch& fetch) {
  RingPlace ring;
  for (int tile = at.first_tile; tile < at.job.tiles; tile += at.tile_step) {
    for (int slice = at.rank; slice < at.job.slices; slice += at.job.cluster) {
      fetch(slice, tile, ring.place, ring.parity ^ 1);
      ring.advance(places);
    }
    if (once) break;
  }
}

template <int Tokens>
__device__ __forceinline__ void fetch_weights(const TilesPlace<Tokens>& at, const CUtensorMap& map) {
  fetch_slices(at, at.job.stages, false, [&](int slice, int tile, int stage, unsigned parity) {
    const unsigned full = at.full(stage);
    wait_for(at.empty(stage), parity);
    arrive_expecting(full, at.stage_bytes());
    copy_box(at.stage_at(stage), map, slice * slice_bytes, tile * at.job.height, full);
  });
}

template <int Tokens>
__device__ __forceinline__ void fetch_x(const TilesPlace<Tokens>& at, const CUtensorMap& map) {
  fetch_slices(at, at.job.x_places, at.job.x_stays, [&](int slice, int /*tile*/, int place, unsigned parity) {
    const unsigned full = at.x_full(place);
    wait_for(at.x_empty(place), parity);
    arrive_expecting(full, at.x_bytes);
    copy_box(at.x_at(place), map, slice * slice_bytes, 0, full);
  });
}

/// The places of a slice of the weight and of x.
struct SlicePlaces {
  int stage = 0;
  int x = 0;
};

template <int Tokens>
__device__ __forceinline__ void release(const TilesPlace<Tokens>& at, const SlicePlaces& places) {
  if (threadIdx.x % 32 != 0) return;
  arrive(at.empty(places.stage));
  if (!at.job.x_stays) arrive(at.x_empty(places.x));
}

/// sums = the block's slices of 64 rows times x. One slice is multiplied while the barriers of the next one are looked
/// at.
template <typename Operand, int Tokens>
__device__ __forceinline__ void multiply_slices(const TilesPlace<Tokens>& at, int group, RingPlace& ring,
                                                RingPlace& x_ring, float (&sums)[Tokens / 2]) {
  if (at.job.x_stays) x_ring = {};
  SlicePlaces before;
  for (int slice = at.rank; slice < at.job.slices; slice += at.job.cluster) {
    wait_for(at.full(ring.place), ring.parity);
    wait_for(at.x_full(x_ring.place), x_ring.parity);
    const unsigned w = describe(at.stage_at(ring.place) + group * tiles_panel * slice_bytes, 0);
    const unsigned x = describe(at.x_at(x_ring.place), 0);
    begin_products();
#pragma unroll
    for (int step = 0; step < slice_bytes / 32; ++step) {
      warpgroup_product<Operand, Tokens>(sums, described(w + 2 * step), described(x + 2 * step),
                                         slice != at.rank || step > 0);
    }
    end_products();
    wait_for_products<1>();
    if (slice != at.rank) release(at, before);
    before = {ring.place, x_ring.place};
    ring.advance(at.job.stages);
    x_ring.advance(at.job.x_places);
    if (at.job.x_stays) x_ring.parity = 0;
  }
  wait_for_products<0>();
  release(at, before);
}

/// The other way round: lane 4 r + t has columns 2 t, 2 t + 1 of row r of 8 x 8 values, two in each word.
__device__ __forceinline__ unsigned transposed(unsigned pair) {
  unsigned result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
}

/// What results are: of the activations' type, floats, or floats that are added to those that are there.
enum class TilesResult : uint8_t { halves, floats, added };

/// Tiles of eight tokens whose results are put out together.
inline constexpr int tiles_at_once = 4;

/// Where a warp's results of 16 rows of a tile go. Of eight tokens, lane 4 r + t has the sums of rows r and r + 8 for
/// tokens 2 t and 2 t + 1, as they are put out as floats; halves are put out as rows 4 t ... 4 t + 3 of token r.
template <typename T, TilesResult result>
class UnitRows {
 public:
  /// Scales of tokens and what is known of the tile's rows are in shared memory.
  __device__ UnitRows(const TilesJob& job, const float* x_scales, const TilesRow* tile_rows, int tile, int row_unit)
      : job_(job), x_scales_(x_scales + threadIdx.x % 4 * 2) {
    constexpr bool halves = result == TilesResult::halves;
    const int quad = threadIdx.x % 32 / 4;
    const int in_quad = threadIdx.x % 4;
    row_ = tile * job.height + 16 * row_unit + (halves ? 4 * in_quad : quad);
    end_ = min(tile * job.height + job.height, job.rows);
    token_ = halves ? quad : 2 * in_quad;
    rows_[0] = tile_rows[16 * row_unit + quad];
    rows_[1] = tile_rows[16 * row_unit + quad + 8];
  }

  /// What is added to the sums of eight tokens; what is not there is any of those that are.
  __device__ __forceinline__ void load(float (&there)[4], int token_tile) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = min(token_ + 8 * token_tile + i % 2, job_.tokens - 1);
      const int row = min(row_ + i / 2 * 8, end_ - 1);
      there[i] = static_cast<const float*>(job_.y)[token * job_.y_stride + row];
    }
  }

  /// Puts out sums of `count` tiles of tokens, from tile `first` on, each added to what is there; at most `real` of
  /// them.
  template <int count>
  __device__ __forceinline__ void put(float (&sums)[count][4], const float (&there)[count][4], int first,
                                      int real = count) const {
    const int tokens = min(job_.tokens, 8 * (first + real));
#pragma unroll
    for (int n = 0; n < count; ++n) {
      const float2 scale = *reinterpret_cast<const float2*>(x_scales_ + 8 * (first + n));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const TilesRow& row = rows_[i / 2];
        sums[n][i] = fmaf(sums[n][i], row.scale * (i % 2 == 0 ? scale.x : scale.y), row.bias);
      }
    }
    if constexpr (result == TilesResult::halves) {
      uint2 rows[count];
#pragma unroll
      for (int n = 0; n < count; ++n) rows[n] = rows_of_token(sums[n]);
#pragma unroll
      for (int n = 0; n < count; ++n) {
        const int token = token_ + 8 * (first + n);
        T* const y = static_cast<T*>(job_.y) + token * job_.y_stride + row_;
        if (token < tokens && row_ < end_) *reinterpret_cast<uint2*>(y) = rows[n];
      }
    } else {
#pragma unroll
      for (int n = 0; n < count; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int token = token_ + 8 * (first + n) + i % 2;
          float* const y = static_cast<float*>(job_.y) + token * job_.y_stride + row_ + i / 2 * 8;
          const float sum = result == TilesResult::added ? there[n][i] + sums[n][i] : sums[n][i];
          if (token < tokens && row_ + i / 2 * 8 < end_) *y = sum;
        }
      }
    }
  }

 private:
  static __device__ __forceinline__ uint2 rows_of_token(const float (&sums)[4]) {
    const unsigned low = transposed(pack<T>(sums[0], sums[1]));  // rows 2 t and 2 t + 1 of token r
    const unsigned high = transposed(pack<T>(sums[2], sums[3]));
    const bool second = threadIdx.x % 4 >= 2;
    const unsigned other = __shfl_xor_sync(all_lanes, second ? low : high, 2);
    uint2 rows = second ? uint2{other, high} : uint2{low, other};  // pairs t % 2 and t % 2 + 2 of a half
    const bool odd = threadIdx.x % 2 == 1;
    const unsigned swapped = __shfl_xor_sync(all_lanes, odd ? rows.x : rows.y, 1);
    (odd ? rows.x : rows.y) = swapped;
    return rows;
  }

  const TilesJob& job_;
  const float* x_scales_;
  int row_;
  int end_;
  int token_;
  TilesRow rows_[2];
};

/// Calls put(constant) with what results are.
template <typename Put>
__device__ __forceinline__ void with_result(const TilesJob& job, const Put& put) {
  if (!job.floats) return put(std::integral_constant<TilesResult, TilesResult::halves>());
  if (!job.accumulate) return put(std::integral_constant<TilesResult, TilesResult::floats>());
  put(std::integral_constant<TilesResult, TilesResult::added>());
}

/// Puts out a warp's own sums.
template <typename T, int Tokens, TilesResult result>
__device__ __forceinline__ void put_sums(const TilesJob& job, const UnitRows<T, result>& rows,
                                         const float (&sums)[Tokens / 2]) {
  constexpr int at_once = Tokens / 8 < tiles_at_once ? Tokens / 8 : tiles_at_once;
#pragma unroll
  for (int first = 0; first < Tokens / 8; first += at_once) {
    if (8 * first >= job.tokens) break;
    float there[at_once][4];
    float some[at_once][4];
#pragma unroll
    for (int n = 0; n < at_once; ++n) {
      if constexpr (result == TilesResult::added) rows.load(there[n], first + n);
#pragma unroll
      for (int i = 0; i < 4; ++i) some[n][i] = sums[4 * (first + n) + i];
    }
    rows.put(some, there, first);
  }
}

/// Sends a warp's sums to the blocks of the cluster that add them.
template <int Tokens>
__device__ __forceinline__ void send_sums(const TilesPlace<Tokens>& at, const float (&sums)[Tokens / 2], int row_unit) {
  int to = 0;
  int tile = 0;  // of the share
#pragma unroll
  for (int n = 0; n < Tokens / 8; ++n) {
    if (8 * n >= at.job.tokens) break;
    const unsigned place = at.sums_at(at.rank, tile, row_unit) + threadIdx.x % 32 * 16;
    const float(&four)[4] = reinterpret_cast<const float(&)[4]>(sums[4 * n]);
    if (to == at.rank)
      store_four_here(place, four);
    else
      store_four_there(in_block(place, to), four, in_block(at.sums_full(), to));
    if (++tile < at.job.share_tiles) continue;
    tile = 0;
    ++to;
  }
}

__device__ __forceinline__ void add_four(float (&sums)[4], const float (&more)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] += more[i];
}

/// Adds what the cluster's blocks have sent and puts it out.
template <typename T, TilesResult result, int Tokens>
__device__ __forceinline__ void add_sums(const TilesPlace<Tokens>& at, const float* x_scales, const TilesRow* tile_rows,
                                         int tile, unsigned parity) {
  const TilesJob& job = at.job;
  const int lane = threadIdx.x % 32;
  const int first = at.rank * job.share_tiles;
  const int tiles = max(0, min(job.share_tiles, (job.tokens + 7) / 8 - first));
  if (threadIdx.x == 0) {
    arrive_expecting(at.sums_full(), (job.cluster - 1) * tiles * job.row_units * sums_unit_bytes);
  }
  const int row_unit = threadIdx.x / 32;
  if (row_unit < job.row_units) {
    const UnitRows<T, result> rows(job, x_scales, tile_rows, tile, row_unit);
    for (int begin = 0; begin < tiles; begin += tiles_at_once) {
      float there[tiles_at_once][4];
      float sums[tiles_at_once][4] = {};
      if constexpr (result == TilesResult::added) {
#pragma unroll
        for (int n = 0; n < tiles_at_once; ++n) rows.load(there[n], first + begin + n);
      }
      wait_for_cluster(at.sums_full(), parity);
      for (int from = 0; from < job.cluster; ++from) {
        float more[tiles_at_once][4];
#pragma unroll
        for (int n = 0; n < tiles_at_once; ++n) {
          load_four(more[n], at.sums_at(from, min(begin + n, tiles - 1), row_unit) + 16 * lane);
        }
#pragma unroll
        for (int n = 0; n < tiles_at_once; ++n) add_four(sums[n], more[n]);
      }
      rows.put(sums, there, first + begin, tiles - begin);
    }
  }
  __syncwarp();
  if (lane < job.cluster) arrive_there(in_block(at.sums_empty(), lane));
}

/// What the warps that multiply do. `x_scales`: of Tokens tokens; behind them twice the rows of a tile.
template <typename Operand, typename T, int Tokens>
__device__ __forceinline__ void multiply_all(const TilesPlace<Tokens>& at, float* x_scales) {
  const TilesJob& job = at.job;
  const int thread = threadIdx.x;
  const int group = of_warp(thread / 128);
  const int row_unit = thread / 32;
  if (thread < Tokens) {
    x_scales[thread] = job.x_scales == nullptr ? 1.0F : thread < job.tokens ? job.x_scales[thread] : 0.0F;
  }
  RingPlace ring;
  RingPlace x_ring;
  unsigned parity = 0;
  float sums[Tokens / 2];
  for (int tile = at.first_tile; tile < job.tiles; tile += at.tile_step, parity ^= 1) {
    auto* const tile_rows = reinterpret_cast<TilesRow*>(x_scales + Tokens) + parity * most_tile_height;
    const int row = tile * job.height + thread;
    TilesRow of_row{1.0F, 0.0F};
    if (row < job.rows) {
      if (job.w_scales != nullptr) of_row.scale = job.w_scales[row];
      if (job.bias != nullptr) of_row.bias = job.bias[row];
    }
    if (group * tiles_panel < job.height) multiply_slices<Operand, Tokens>(at, group, ring, x_ring, sums);
    if (thread < most_tile_height) tile_rows[thread] = of_row;
    if (job.cluster > 1) {
      wait_for_cluster(at.sums_empty(), parity ^ 1);
      if (row_unit < job.row_units) send_sums(at, sums, row_unit);
    }
    sync_threads(1, 32 * tiles_warps);
    with_result(job, [&]<TilesResult result>(std::integral_constant<TilesResult, result>) {
      if (job.cluster > 1) return add_sums<T, result>(at, x_scales, tile_rows, tile, parity);
      if (row_unit >= job.row_units) return;
      put_sums<T, Tokens>(job, UnitRows<T, result>(job, x_scales, tile_rows, tile, row_unit), sums);
    });
  }
}

template <typename Operand, typename T, int Tokens>
__global__ void __launch_bounds__(tiles_register_threads<Tokens>, 1)
    multiply_tiles(const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap x_map,
                   const __grid_constant__ TilesJob job) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) std::byte shared[];
  allow_next();
  const TilesPlace<Tokens> at(job, shared);
  if (threadIdx.x == 0) prefetch_map(w_map);
  if (threadIdx.x == 32) prefetch_map(x_map);
  at.make_barriers();
  __syncthreads();
  const bool clustered = job.cluster > 1;
  if (clustered) enter_cluster();
  const int warp = of_warp(threadIdx.x / 32);
  if (warp < tiles_warps) {
    wait_for_previous();
    if (clustered) join_cluster();
    multiply_all<Operand, T, Tokens>(at, reinterpret_cast<float*>(shared + job.scales_at));
    __syncwarp();
  } else {
    if (warp > tiles_warps) wait_for_previous();
    if (elected()) {
      if (warp == tiles_warps)
        fetch_weights(at, w_map);
      else
        fetch_x(at, x_map);
    }
    __syncwarp();
    if (clustered) join_cluster();
  }
  if (clustered) {  // no block ends before its memory is needed no more
    enter_cluster();
    join_cluster();
  }
#endif
}
#endif

}  // namespace quern::cuda
