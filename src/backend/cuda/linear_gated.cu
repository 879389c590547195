// The kernel of linear_gated.h: tiles of 128 rows of the weight and 256 tokens, by the matrix instructions of
// warpgroups. Eight rows of the gate and the same of the up projection lie in turn in a tile, so that the thread that
// has the one's sums has the other's. The two blocks of a cluster multiply different rows with the same tokens, and
// each fetches half of those for both. One thread fetches slices of 128 bytes into a ring in shared memory; two
// warpgroups multiply 64 rows each.
#include "backend/cuda/linear_gated.h"

#include <algorithm>

#include "backend/cuda/activation.cuh"
#include "backend/cuda/boxes.h"
#include "backend/cuda/linear_tiles.cuh"

namespace quern::cuda {
namespace {

constexpr int tile_tokens = 256;
constexpr int tile_rows = 2 * tiles_panel;
constexpr int tile_hidden = tile_rows / 2;
constexpr int sharers = 2;  // blocks of a cluster
constexpr int stages = 4;
constexpr int w_bytes = tile_rows * slice_bytes;
constexpr int x_bytes = tile_tokens * slice_bytes;
constexpr int stage_bytes = w_bytes + x_bytes;
constexpr int barriers_at = stages * stage_bytes;
constexpr int shared_bytes = barriers_at + 2 * stages * 8;
constexpr int multiplying_warps = tiles_warps;
constexpr int threads = 32 * (multiplying_warps + 1);

struct Job {
  int32_t tokens;
  int32_t hidden;
  int32_t slices;
  int32_t row_groups;  // of so many tiles as there are sharers
  int32_t token_tiles;
  Activation activation;
  int64_t y_stride;
  void* y;
};

/// Row groups that are multiplied with all tokens before the next ones are: their weights stay in the cache.
constexpr int band = 8;

/// What the blocks of a cluster work on.
struct Item {
  int32_t row_group;
  int32_t token;
};

struct Place {
  const Job& job;
  unsigned shared;
  int sharer;
  int first;  // of all items
  int step;
  int items;

  __device__ Place(const Job& all, const std::byte* memory)
      : job(all),
        shared(shared_address(memory)),
        sharer(static_cast<int>(blockIdx.x) % sharers),
        first(static_cast<int>(blockIdx.x) / sharers),
        step(static_cast<int>(gridDim.x) / sharers),
        items(all.row_groups * all.token_tiles) {}

  __device__ __forceinline__ Item item(int number) const {
    const int in_band = band * job.token_tiles;
    const int first_group = number / in_band * band;
    const int rest = number % in_band;
    const int height = min(band, job.row_groups - first_group);
    return {first_group + rest % height, rest / height * tile_tokens};
  }
  __device__ int first_hidden(const Item& item) const { return (item.row_group * sharers + sharer) * tile_hidden; }
  __device__ unsigned w_at(int stage) const { return shared + stage * stage_bytes; }
  __device__ unsigned x_at(int stage) const { return w_at(stage) + w_bytes; }
  __device__ unsigned full(int stage) const { return shared + barriers_at + 16 * stage; }
  __device__ unsigned empty(int stage) const { return full(stage) + 8; }

  __device__ void make_barriers() const {
    if (threadIdx.x >= stages) return;
    make_barrier(full(threadIdx.x), 1);
    make_barrier(empty(threadIdx.x), multiplying_warps * sharers);
    show_barriers();
  }
};

__device__ __forceinline__ void fetch(const Place& at, const CUtensorMap& w_map, const CUtensorMap& x_map) {
  constexpr int part = tile_tokens / sharers;
  constexpr unsigned all_blocks = (1U << sharers) - 1;
  RingPlace ring;
  for (int number = at.first; number < at.items; number += at.step) {
    const Item item = at.item(number);
    for (int slice = 0; slice < at.job.slices; ++slice) {
      const int stage = ring.place;
      const unsigned full = at.full(stage);
      wait_for(at.empty(stage), ring.parity ^ 1);
      arrive_expecting(full, stage_bytes);
      copy_box(at.w_at(stage), w_map, slice * slice_bytes, 0, 0, at.first_hidden(item) / 8, full);
      copy_box_to(all_blocks, at.x_at(stage) + at.sharer * part * slice_bytes, x_map, slice * slice_bytes,
                  item.token + at.sharer * part, full);
      ring.advance(stages);
    }
  }
}

/// A warp does not need a place any longer: all that fetch into it are told.
__device__ __forceinline__ void release(const Place& at, int stage) {
  const int lane = threadIdx.x % 32;
  if (lane < sharers) release_there(in_block(at.empty(stage), lane));
}

template <typename T>
__device__ __forceinline__ void multiply(const Place& at, int group, RingPlace& ring, float (&sums)[tile_tokens / 2]) {
  int before = 0;
  for (int slice = 0; slice < at.job.slices; ++slice) {
    wait_for(at.full(ring.place), ring.parity);
    const unsigned w = describe(at.w_at(ring.place) + group * tiles_panel * slice_bytes, 0);
    const unsigned x = describe(at.x_at(ring.place), 0);
    begin_products();
#pragma unroll
    for (int step = 0; step < slice_bytes / 32; ++step) {
      warpgroup_product<T, tile_tokens>(sums, described(w + 2 * step), described(x + 2 * step), slice > 0 || step > 0);
    }
    end_products();
    wait_for_products<1>();
    if (slice > 0) release(at, before);
    before = ring.place;
    ring.advance(stages);
  }
  wait_for_products<0>();
  release(at, before);
}

/// Of eight tokens, lane 4 r + t has the sums of the gate's row r and of the up projection's for tokens 2 t and 2 t +
/// 1; it puts out rows 2 t and 2 t + 1 of token r.
template <typename T>
__device__ __forceinline__ void put(const Job& job, const Item& item, int first_row, Activation activation,
                                    const float (&sums)[tile_tokens / 2]) {
  const int lane = threadIdx.x % 32;
  const int row = first_row + threadIdx.x / 32 * 8 + lane % 4 * 2;
  const int first_token = item.token + lane / 4;
  T* y = static_cast<T*>(job.y) + first_token * job.y_stride + row;
  const auto rounded = [](float value) { return to_float(from_float<T>(value)); };
#pragma unroll
  for (int n = 0; n < tile_tokens / 8; ++n) {
    const float(&four)[4] = reinterpret_cast<const float(&)[4]>(sums[4 * n]);
    const unsigned pair = pack<T>(gated_value<T>(rounded(four[0]), rounded(four[2]), activation),
                                  gated_value<T>(rounded(four[1]), rounded(four[3]), activation));
    const unsigned of_token = transposed(pair);
    if (first_token + 8 * n < job.tokens && row < job.hidden) *reinterpret_cast<unsigned*>(y) = of_token;
    y += 8 * job.y_stride;
  }
}

template <typename T>
__global__ void __launch_bounds__(threads, 1)
    multiply_and_gate(const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap x_map,
                      const __grid_constant__ Job job) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) std::byte shared[];
  allow_next();
  const Place at(job, shared);
  if (threadIdx.x == 32 * multiplying_warps) {
    prefetch_map(w_map);
    prefetch_map(x_map);
  }
  at.make_barriers();
  __syncthreads();
  enter_cluster();
  join_cluster();
  wait_for_previous();
  const int warp = of_warp(threadIdx.x / 32);
  if (warp < multiplying_warps) {
    RingPlace ring;
    float sums[tile_tokens / 2];
    for (int number = at.first; number < at.items; number += at.step) {
      multiply<T>(at, warp / 4, ring, sums);
      const Item item = at.item(number);
      const int first_row = at.first_hidden(item);
      if (job.activation == Activation::silu)
        put<T>(job, item, first_row, Activation::silu, sums);
      else
        put<T>(job, item, first_row, job.activation, sums);
    }
  } else if (elected()) {
    fetch(at, w_map, x_map);
  }
  __syncwarp();
  enter_cluster();  // no block ends before its memory is needed no more
  join_cluster();
#endif
}

template <typename T>
void run(const Queue& queue, const GatedProduct& product, Tensor y, Activation activation) {
  static const bool allowed = allow_shared(multiply_and_gate<T>, shared_bytes);
  constexpr auto size = static_cast<int64_t>(sizeof(T));
  const int64_t row_bytes = product.cols * size;
  const int32_t tiles = (product.hidden + tile_hidden - 1) / tile_hidden;
  Job job{};
  job.tokens = product.tokens;
  job.hidden = product.hidden;
  job.slices = static_cast<int32_t>((row_bytes + slice_bytes - 1) / slice_bytes);
  job.row_groups = (tiles + sharers - 1) / sharers;
  job.token_tiles = (product.tokens + tile_tokens - 1) / tile_tokens;
  job.activation = activation;
  job.y_stride = y.strides[0];
  job.y = y.data;
  CUtensorMap w_map{};
  CUtensorMap x_map{};
  CHECK(allowed && describe_both(w_map, product.w, row_bytes, product.hidden, slice_bytes, tile_rows) &&
        describe_rows(x_map, product.x, row_bytes, product.x_stride * size, product.tokens, slice_bytes,
                      tile_tokens / sharers));
  const int clusters = std::min(job.row_groups * job.token_tiles, native(queue).multiprocessors / sharers);
  launch_blocks(queue, multiply_and_gate<T>,
                {static_cast<unsigned>(clusters * sharers), threads, static_cast<size_t>(shared_bytes), sharers}, w_map,
                x_map, job);
}

}  // namespace

bool takes_gated(const GatedProduct& product) {
  constexpr int least_tokens = 1024;
  constexpr int least_cols = 1024;
  static const bool can = runs_warpgroups() && describes_boxes();
  const auto aligned = [](const std::byte* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; };
  return can && product.tokens >= least_tokens && product.cols >= least_cols && product.hidden % 8 == 0 &&
         product.cols % 8 == 0 && product.x_stride % 8 == 0 && aligned(product.x) && aligned(product.w);
}

void gated_product(const Queue& queue, const GatedProduct& product, Tensor y, Activation activation) {
  if (product.type == Dtype::f16)
    run<Half>(queue, product, y, activation);
  else
    run<Bf16>(queue, product, y, activation);
}

}  // namespace quern::cuda
