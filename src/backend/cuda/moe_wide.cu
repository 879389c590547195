// Experts with many pairs each, by the matrix instructions of warpgroups: tiles of 128 rows of an expert's weight and
// up to 256 of its pairs, whose inputs lie in the order of pairs. The two blocks of a cluster have neighbouring tiles
// of rows and fetch the inputs for each other. With gate and up projections eight rows of each lie in turn in a tile,
// so that the thread that has the one's sums has the other's.
#include <algorithm>

#include "backend/cuda/activation.cuh"
#include "backend/cuda/boxes.h"
#include "backend/cuda/linear_tiles.cuh"
#include "backend/cuda/moe_experts.h"

namespace quern::cuda {
namespace {

constexpr int tile_height = 2 * tiles_panel;
constexpr int sharers = 2;  // blocks of a cluster
constexpr int w_bytes = tile_height * slice_bytes;
constexpr int threads = 32 * (tiles_warps + 1);
constexpr int most_experts = 1024;

/// Memory of a block whose tiles have so many pairs.
template <int Pairs>
struct Memory {
  static constexpr int x_bytes = Pairs * slice_bytes;
  static constexpr int stage_bytes = w_bytes + x_bytes;
  static constexpr int stages = (192 << 10) / stage_bytes;
  static constexpr int barriers_at = stages * stage_bytes;
  static constexpr int items_at = barriers_at + 2 * stages * 8;
  static constexpr int shared_bytes = items_at + most_experts * 4;
};

struct Job {
  ExpertJob all;
  int32_t rows;        // of each part
  int32_t height;      // rows of y that a tile makes
  int32_t row_groups;  // of so many tiles as there are sharers
  int32_t slices;
};

/// What the blocks of a cluster work on.
struct Item {
  int expert;
  int pair;
  int end;  // of the expert's pairs
  int row_group;
};

template <int Pairs>
struct Place {
  using M = Memory<Pairs>;
  const Job& job;
  unsigned shared;
  int* items_until;  // of each expert and those before it
  int sharer;
  int first;
  int step;

  __device__ Place(const Job& of, std::byte* memory)
      : job(of),
        shared(shared_address(memory)),
        items_until(reinterpret_cast<int*>(memory + M::items_at)),
        sharer(static_cast<int>(blockIdx.x) % sharers),
        first(static_cast<int>(blockIdx.x) / sharers),
        step(static_cast<int>(gridDim.x) / sharers) {}

  __device__ int first_row(const Item& item) const { return (item.row_group * sharers + sharer) * job.height; }
  __device__ unsigned w_at(int stage) const { return shared + stage * M::stage_bytes; }
  __device__ unsigned x_at(int stage) const { return w_at(stage) + w_bytes; }
  __device__ unsigned full(int stage) const { return shared + M::barriers_at + 16 * stage; }
  __device__ unsigned empty(int stage) const { return full(stage) + 8; }

  __device__ void make_barriers() const {
    if (threadIdx.x >= M::stages) return;
    make_barrier(full(threadIdx.x), 1);
    make_barrier(empty(threadIdx.x), tiles_warps * sharers);
    show_barriers();
  }

  /// All threads: counts the items of all experts.
  __device__ void count_items() const {
    const int experts = job.all.experts;
    for (int e = static_cast<int>(threadIdx.x); e < experts; e += threads) {
      items_until[e] = (job.all.starts[e + 1] - job.all.starts[e] + Pairs - 1) / Pairs * job.row_groups;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
      int before = 0;
      for (int begin = 0; begin < experts; begin += 32) {
        const int e = begin + static_cast<int>(threadIdx.x);
        int until = e < experts ? items_until[e] : 0;
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
          const int other = __shfl_up_sync(all_lanes, until, distance);
          if (static_cast<int>(threadIdx.x) >= distance) until += other;
        }
        until += before;
        if (e < experts) items_until[e] = until;
        before = __shfl_sync(all_lanes, until, 31);
      }
    }
    __syncthreads();
  }
  __device__ int items() const { return items_until[job.all.experts - 1]; }

  __device__ Item item(int number) const {
    int low = 0;  // the first expert whose items end after this one
    for (int high = job.all.experts - 1; low < high;) {
      const int middle = (low + high) / 2;
      if (items_until[middle] > number)
        high = middle;
      else
        low = middle + 1;
    }
    const int in_expert = number - (low == 0 ? 0 : items_until[low - 1]);
    return {low, job.all.starts[low] + in_expert / job.row_groups * Pairs, job.all.starts[low + 1],
            in_expert % job.row_groups};
  }
};

template <int Pairs, bool gated>
__device__ __forceinline__ void fetch(const Place<Pairs>& at, const CUtensorMap& w_map, const CUtensorMap& x_map) {
  using M = Memory<Pairs>;
  constexpr int part = Pairs / sharers;
  constexpr unsigned all_blocks = (1U << sharers) - 1;
  RingPlace ring;
  for (int number = at.first; number < at.items(); number += at.step) {
    const Item item = at.item(number);
    const int row = at.first_row(item);
    for (int slice = 0; slice < at.job.slices; ++slice) {
      const unsigned full = at.full(ring.place);
      wait_for(at.empty(ring.place), ring.parity ^ 1);
      arrive_expecting(full, M::stage_bytes);
      if constexpr (gated)
        copy_box(at.w_at(ring.place), w_map, slice * slice_bytes, 0, 0, row / 8, item.expert, full);
      else
        copy_box(at.w_at(ring.place), w_map, slice * slice_bytes, row, item.expert, full);
      copy_box_to(all_blocks, at.x_at(ring.place) + at.sharer * part * slice_bytes, x_map, slice * slice_bytes,
                  item.pair + at.sharer * part, full);
      ring.advance(M::stages);
    }
  }
}

template <int Pairs>
__device__ __forceinline__ void release(const Place<Pairs>& at, int stage) {
  const int lane = threadIdx.x % 32;
  if (lane < sharers) release_there(in_block(at.empty(stage), lane));
}

template <typename T, int Pairs>
__device__ __forceinline__ void multiply(const Place<Pairs>& at, int group, RingPlace& ring, float (&sums)[Pairs / 2]) {
  int before = 0;
  for (int slice = 0; slice < at.job.slices; ++slice) {
    wait_for(at.full(ring.place), ring.parity);
    const unsigned w = describe(at.w_at(ring.place) + group * tiles_panel * slice_bytes, 0);
    const unsigned x = describe(at.x_at(ring.place), 0);
    begin_products();
#pragma unroll
    for (int step = 0; step < slice_bytes / 32; ++step) {
      warpgroup_product<T, Pairs>(sums, described(w + 2 * step), described(x + 2 * step), slice > 0 || step > 0);
    }
    end_products();
    wait_for_products<1>();
    if (slice > 0) release(at, before);
    before = ring.place;
    ring.advance(Memory<Pairs>::stages);
  }
  wait_for_products<0>();
  release(at, before);
}

/// Scale and bias of a row of y.
struct Factors {
  float scale = 1.0F;
  float bias = 0.0F;

  __device__ Factors(RowFactors of, int column, bool real) {
    if (real && of.scale != nullptr) scale = of.scale[column];
    if (real && of.bias != nullptr) bias = of.bias[column];
  }
  __device__ __forceinline__ float operator()(float sum) const { return fmaf(sum, scale, bias); }
};

/// Of eight pairs, lane 4 r + t has the sums of the tile's rows r and r + 8 of its warp for pairs 2 t and 2 t + 1; it
/// puts out rows 2 t and 2 t + 1 (and those 8 later) of pair r.
template <typename T, bool gated, int Pairs>
__device__ __forceinline__ void put(const Job& job, const Item& item, int first_row, const float (&sums)[Pairs / 2]) {
  const int lane = threadIdx.x % 32;
  const int of_warp = first_row + static_cast<int>(threadIdx.x) / 32 * (gated ? 8 : 16);
  const int own = of_warp + lane / 4;
  const RowFactors factors = job.all.factors(item.expert);
  const int column = job.all.parts[0].first_row;
  const Factors first(factors, column + own, own < job.rows);
  const int other = gated ? own : own + 8;
  const Factors second(factors, (gated ? job.all.parts[1].first_row : column) + other, other < job.rows);
  const int row = of_warp + lane % 4 * 2;
  const int first_pair = item.pair + lane / 4;
  T* y = static_cast<T*>(job.all.y) + first_pair * job.all.y_stride + column + row;
#pragma unroll
  for (int n = 0; n < Pairs / 8; ++n) {
    const float(&four)[4] = reinterpret_cast<const float(&)[4]>(sums[4 * n]);
    const float low[2] = {first(four[0]), first(four[1])};
    const float high[2] = {second(four[2]), second(four[3])};
    const bool real = first_pair + 8 * n < item.end;
    if constexpr (gated) {
      const Activation activation = *job.all.gated;
      const unsigned of_pair =
          transposed(pack<T>(gated_value<T>(low[0], high[0], activation), gated_value<T>(low[1], high[1], activation)));
      if (real && row < job.rows) *reinterpret_cast<unsigned*>(y) = of_pair;
    } else {
      const unsigned of_pair[2] = {transposed(pack<T>(low[0], low[1])), transposed(pack<T>(high[0], high[1]))};
      if (real && row < job.rows) *reinterpret_cast<unsigned*>(y) = of_pair[0];
      if (real && row + 8 < job.rows) *reinterpret_cast<unsigned*>(y + 8) = of_pair[1];
    }
    y += 8 * job.all.y_stride;
  }
}

template <typename T, bool gated, int Pairs>
__global__ void __launch_bounds__(threads, 1)
    multiply_wide(const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap x_map,
                  const __grid_constant__ Job job) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) std::byte shared[];
  allow_next();
  const Place<Pairs> at(job, shared);
  if (threadIdx.x == 32 * tiles_warps) {
    prefetch_map(w_map);
    prefetch_map(x_map);
  }
  at.make_barriers();
  __syncthreads();
  enter_cluster();
  join_cluster();
  wait_for_previous();
  at.count_items();
  const int warp = of_warp(static_cast<int>(threadIdx.x) / 32);
  if (warp < tiles_warps) {
    RingPlace ring;
    float sums[Pairs / 2];
    for (int number = at.first; number < at.items(); number += at.step) {
      multiply<T>(at, warp / 4, ring, sums);
      const Item item = at.item(number);
      put<T, gated, Pairs>(job, item, at.first_row(item), sums);
    }
  } else if (elected()) {
    fetch<Pairs, gated>(at, w_map, x_map);
  }
  __syncwarp();
  enter_cluster();  // no block ends before its memory is needed no more
  join_cluster();
#endif
}

/// to[i] = x[tokens[i]], in pieces of 16 bytes.
__global__ void __launch_bounds__(256)
    gather(uint4* to, const uint4* x, int64_t stride, const int32_t* tokens, int32_t pieces, int64_t all) {
  allow_next();
  wait_for_previous();
  const int64_t number = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (number >= all) return;
  const int64_t pair = number / pieces;
  to[number] = x[tokens[pair] * stride + number % pieces];
}

template <typename T, bool gated, int Pairs>
bool run(const Queue& queue, Job job) {
  using M = Memory<Pairs>;
  static const bool allowed = allow_shared(multiply_wide<T, gated, Pairs>, M::shared_bytes);
  const ExpertJob& all = job.all;
  const int64_t row_bytes = int64_t{all.cols} * 2;
  CUtensorMap w_map{};
  CUtensorMap x_map{};
  const BoxedMatrices experts{all.parts[0].data, row_bytes, all.parts[0].rows, all.parts[0].step, all.experts};
  const bool described =
      gated ? describe_both(w_map, experts, all.parts[1].data - all.parts[0].data, slice_bytes, tile_height)
            : describe_rows(w_map, experts, slice_bytes, tile_height);
  if (!allowed || !described ||
      !describe_rows(x_map, static_cast<const std::byte*>(all.x), row_bytes, all.x_stride * 2, all.pairs, slice_bytes,
                     Pairs / sharers)) {
    return false;
  }
  const int most_items = (all.pairs / Pairs + all.slots) * job.row_groups;
  const int clusters = std::min(most_items, native(queue).multiprocessors / sharers);
  launch_blocks(queue, multiply_wide<T, gated, Pairs>,
                {static_cast<unsigned>(clusters * sharers), threads, static_cast<size_t>(M::shared_bytes), sharers},
                w_map, x_map, job);
  return true;
}

template <typename T, bool gated>
bool run_for(const Queue& queue, const Job& job) {
  const int usual = job.all.pairs / job.all.all_experts;
  if (usual <= 64) return run<T, gated, 64>(queue, job);
  if (usual <= 192) return run<T, gated, 128>(queue, job);
  return run<T, gated, 256>(queue, job);
}

}  // namespace

bool takes_wide_experts(const ExpertJob& job) {
  static const bool can = runs_warpgroups() && describes_boxes();
  const auto aligned = [](const void* data, int64_t step) {
    return reinterpret_cast<uintptr_t>(data) % 16 == 0 && step % 16 == 0;
  };
  const int64_t apart = job.parts[1].data - job.parts[0].data;
  const bool even = job.parts[0].step == job.parts[1].step;
  const bool rows = job.gated ? even && job.parts[0].rows % 8 == 0 && apart > 0 && apart % 16 == 0
                              : job.parts[1].rows == 0 && job.parts[0].rows % 2 == 0;
  return can && rows && job.experts > 1 && job.experts <= most_experts && job.cols % 8 == 0 && job.x_stride % 8 == 0 &&
         job.y_stride % 2 == 0 && job.parts[0].first_row % 2 == 0 && aligned(job.parts[0].data, job.parts[0].step) &&
         job.parts[0].step > 0 && aligned(job.x, 0) && reinterpret_cast<uintptr_t>(job.y) % 4 == 0;
}

void gather_pairs(const Queue& queue, std::byte* to, const ExpertJob& job) {
  const int32_t pieces = job.cols / 8;
  const int64_t all = int64_t{job.pairs} * pieces;
  launch(queue, gather, static_cast<unsigned>((all + 255) / 256), 256, 0, reinterpret_cast<uint4*>(to),
         static_cast<const uint4*>(job.x), job.x_stride / 8, job.tokens, pieces, all);
}

template <typename T>
bool launch_wide_experts(const Queue& queue, const ExpertJob& all) {
  Job job{};
  job.all = all;
  job.rows = all.parts[0].rows;
  job.height = all.gated ? tile_height / 2 : tile_height;
  const int tiles = (job.rows + job.height - 1) / job.height;
  job.row_groups = (tiles + sharers - 1) / sharers;
  job.slices = static_cast<int32_t>((int64_t{all.cols} * 2 + slice_bytes - 1) / slice_bytes);
  return all.gated ? run_for<T, true>(queue, job) : run_for<T, false>(queue, job);
}
template bool launch_wide_experts<Half>(const Queue& queue, const ExpertJob& job);
template bool launch_wide_experts<Bf16>(const Queue& queue, const ExpertJob& job);

}  // namespace quern::cuda
