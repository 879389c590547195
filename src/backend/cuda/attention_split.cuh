// Attention of few queries over long contexts: a block's four warps take keys of one tile of 16 query rows, each on its
// own, with units of 16 keys on their way into shared memory, and their sums are merged.
#pragma once

#include "backend/cuda/attention_load.cuh"
#include "backend/cuda/attention_split.h"
#include "backend/cuda/attention_tile_f8.cuh"

namespace quern::cuda {

/// How a head size is computed. With `is_f8` stages hold 8-bit floats, which become half floats in registers; in the
/// batch-invariant mode in memory of their own, so that prompts get the same bits (attention_rows.cuh).
template <int head_dims, bool is_invariant, bool is_f8 = false>
struct SplitShape {
  static constexpr bool f8 = is_f8;
  static constexpr int dims = head_dims;
  static constexpr bool invariant = is_invariant;
  static constexpr bool narrow = f8 && !invariant;
  static constexpr int block = (invariant || f8) && dims <= 128 ? 32 : 16;  // keys that a warp adds at once
  static constexpr int stages = dims == 256 ? (narrow ? 4 : 2) : dims == 64 && !invariant ? 4 : 3;
  static constexpr int residents = dims == 256 || (dims == 128 && invariant) ? 1 : dims == 64 && !invariant ? 3 : 2;
  /// Keys of a quantum: each warp takes every fourth block, or one split.
  static constexpr int quantum = plan_warps * (invariant ? split_keys : block);

  static constexpr int merge_rows = 4;
  static constexpr int element_bytes = f8 ? 1 : 2;
  static constexpr int stage_bytes = 2 * block * dims * element_bytes;
  static constexpr int work_bytes = f8 && invariant ? plan_warps * 2 * block * dims * 2 : 0;
  static constexpr int q_bytes = tile_rows * dims * 2;
  static constexpr int ring_bytes = plan_warps * stages * stage_bytes;
  static constexpr int merge_bytes = plan_warps * merge_rows * (dims + 2) * 4;
  static constexpr int total_bytes = invariant ? tile_rows * (dims + 2) * 4 : 0;
  static constexpr int shared_bytes = ring_bytes + work_bytes + 2 * q_bytes + merge_bytes + total_bytes;
};

#ifdef __CUDACC__
/// The sums of one row as a warp holds them for merging: four columns for each lane.
template <int dims>
struct RowPart {
  static constexpr int parts = (dims + 127) / 128;
  float4 values[parts] = {};
  float maximum = -INFINITY;
  float total = 0.0F;

  static __device__ __forceinline__ int column(int part) { return part * 128 + threadIdx.x % 32 * 4; }

  /// `values` [dims], `sums`: maximum and total
  __device__ __forceinline__ void load(const float* values_from, const float* sums) {
    maximum = sums[0];
    total = sums[1];
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      if (column(part) < dims) values[part] = *reinterpret_cast<const float4*>(values_from + column(part));
    }
  }
  __device__ __forceinline__ void load_global(const float* values_from, const float* sums) {
    const float2 both = __ldcg(reinterpret_cast<const float2*>(sums));
    maximum = both.x;
    total = both.y;
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      if (column(part) < dims) values[part] = __ldcg(reinterpret_cast<const float4*>(values_from + column(part)));
    }
  }
  __device__ __forceinline__ void store(float* values_to, float* sums) const {
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      if (column(part) < dims) *reinterpret_cast<float4*>(values_to + column(part)) = values[part];
    }
    if (threadIdx.x % 32 == 0) *reinterpret_cast<float2*>(sums) = make_float2(maximum, total);
  }

  /// Adds the sums of later keys.
  __device__ __forceinline__ void fold(const RowPart& later) {
    const Rescale rescale(maximum, later.maximum);
    maximum = rescale.maximum;
    total = rescale.add(total, later.total);
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      values[part].x = rescale.add(values[part].x, later.values[part].x);
      values[part].y = rescale.add(values[part].y, later.values[part].y);
      values[part].z = rescale.add(values[part].z, later.values[part].z);
      values[part].w = rescale.add(values[part].w, later.values[part].w);
    }
  }

  /// The result of the row: weighted values over the sum of weights.
  __device__ __forceinline__ void write(const AttentionCall& call, const Piece& piece, int row) const {
    const int64_t at = row_begin(call, piece.span.begin, piece.head(), piece.first_row() + row, call.out_stride);
    const float factor = last_factor(call, piece.head(), piece.first_row() + row, maximum, total);
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      if (column(part) >= call.pages.head_dim) continue;
      const float4 x = values[part];
      uint2 packed;
      if (call.activations == Dtype::f16) {
        packed = make_uint2(pack<Half>(x.x * factor, x.y * factor), pack<Half>(x.z * factor, x.w * factor));
      } else {
        packed = make_uint2(pack<Bf16>(x.x * factor, x.y * factor), pack<Bf16>(x.z * factor, x.w * factor));
      }
      *reinterpret_cast<uint2*>(static_cast<uint16_t*>(call.out) + at + column(part)) = packed;
    }
  }
};

/// Parts of a block's shared memory.
template <typename Shape>
struct SplitMemory {
  unsigned ring;      // of this warp
  unsigned work;      // of this warp: keys and values made of 8-bit floats
  unsigned queries;   // two tiles, for this piece and the next
  float* merge;       // [warps, merge_rows, dims]
  float* merge_sums;  // [warps, merge_rows, 2]
  float* total;       // [tile_rows, dims], of the splits before
  float* total_sums;  // [tile_rows, 2]

  __device__ explicit SplitMemory(std::byte* memory) {
    ring = shared_address(memory) + threadIdx.x / 32 * (Shape::stages * Shape::stage_bytes);
    constexpr int queries_at = Shape::ring_bytes + Shape::work_bytes;
    work = shared_address(memory) + Shape::ring_bytes + threadIdx.x / 32 * (Shape::work_bytes / plan_warps);
    queries = shared_address(memory) + queries_at;
    merge = reinterpret_cast<float*>(memory + queries_at + 2 * Shape::q_bytes);
    merge_sums = merge + plan_warps * Shape::merge_rows * Shape::dims;
    total = merge_sums + plan_warps * Shape::merge_rows * 2;
    total_sums = total + tile_rows * Shape::dims;
  }
};

/// Eight query values, as elements of T, go to shared memory; zeros if they are not real.
template <typename T>
__device__ __forceinline__ void load_query(const SplitCall& split, unsigned to, int64_t at, bool real) {
  const auto* from = static_cast<const uint16_t*>(split.call.q) + (real ? at : 0);
  if (split.direct_queries) return copy_chunk(to, from, real);
  uint4 eight{};
  if (real && split.aligned_queries) {
    eight = *reinterpret_cast<const uint4*>(from);
  } else if (real) {
    const auto two = [&](int i) { return from[i] | static_cast<unsigned>(from[i + 1]) << 16; };
    eight = make_uint4(two(0), two(2), two(4), two(6));
  }
  unsigned words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
  for (unsigned& word : words) {
    const auto low = static_cast<unsigned short>(word);
    const auto high = static_cast<unsigned short>(word >> 16);
    word = split.call.activations == Dtype::f16
               ? pack<T>(__half2float(__ushort_as_half(low)), __half2float(__ushort_as_half(high)))
               : pack<T>(__uint_as_float(word << 16), __uint_as_float(word & 0xFFFF0000U));
  }
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]),
               "r"(words[3])
               : "memory");
}

/// All threads: the query rows of a piece, zeros where there are none.
template <typename T, int dims>
__device__ __forceinline__ void load_queries(const SplitCall& split, const Piece& piece, unsigned to) {
  const AttentionCall& call = split.call;
  constexpr int row_chunks = dims / chunk_dims;
  for (int i = threadIdx.x; i < tile_rows * row_chunks; i += plan_threads) {
    const int row = i / row_chunks;
    const int chunk = i % row_chunks;
    const int number = piece.first_row() + row;
    const bool real = number < piece.span.rows && chunk * chunk_dims < call.pages.head_dim;
    const int64_t at = row_begin(call, piece.span.begin, piece.head(), number, call.q_stride) + chunk * chunk_dims;
    load_query<T>(split, to + chunk_offset(row, chunk), at, real);
  }
}

/// The work of one block.
template <typename T, typename Shape>
class SplitBlock {
 public:
  __device__ __forceinline__ SplitBlock(const SplitCall& split, std::byte* memory)
      : split_(split), call_(split.call), memory_(memory) {}

  __device__ __forceinline__ void run() {
    Piece piece;
    share_.quantum = Shape::quantum;
    share_.short_rows = split_.short_rows;
    share_.step = Shape::invariant ? 1 : 1 << 30;
    const int64_t cut_below = Shape::invariant ? split_.slots / plan_warps : int64_t{1} << 60;
    if (!begin_share(share_, piece, call_, cut_below)) return wait_for_previous();

    Loader<T, Shape> loader(call_, memory_.ring);
    Walk walk;
    int parity = 0;
    // Keys of earlier steps come while the kernels in front still run, queries and new keys after these.
    walk.begin<Shape>(call_, piece);
    loader.begin(walk, call_.spans.rows[piece.segment], piece.head());
    Owners owners = owners_of(piece);
    const int early = walk.blocks_before<Shape>(call_.spans.positions[piece.span.begin]);
    for (int step = 0; step < min(early, Shape::stages - 1); ++step) loader.issue(walk, step);
    wait_for_previous();
    load_queries<T, Shape::dims>(split_, piece, memory_.queries);
    end_copies();
    for (int step = early; step < Shape::stages - 1; ++step) loader.issue(walk, step);
    wait_for_copies<0>();
    for (bool more = true; more;) {
      wait_for_copies<Shape::stages - 2>();
      __syncthreads();  // all threads' parts of the queries are there
      sums_.begin(memory_.queries + parity * Shape::q_bytes);
      Sight sight = call_.sight;
      if constexpr (Shape::f8) sight.scale *= call_.pages.key_scale(piece.head());
      for (int step = 0; step < walk.count; ++step) {
        wait_for_copies<Shape::stages - 2>();
        __syncwarp();
        loader.issue(walk, step + Shape::stages - 1);
        const unsigned keys = Shape::work_bytes > 0 ? widen_stage(loader.stage(step)) : loader.stage(step);
        constexpr int values_after = Shape::block * dims * (Shape::narrow ? 1 : 2);
        sums_.template add<Shape::block>(memory_.queries + parity * Shape::q_bytes, keys, keys + values_after,
                                         (walk.base + step * walk.stride) * Shape::block, walk.rows,
                                         sight.scale * 1.442695041F, sight);
      }
      sums_.finish();
      __syncwarp();
      Piece next = piece;
      more = share_.advance(next, call_);
      parity ^= 1;
      if (more) {
        walk.begin<Shape>(call_, next);
        const unsigned queries = memory_.queries + parity * Shape::q_bytes;
        if (split_.direct_queries) load_queries<T, Shape::dims>(split_, next, queries);
        loader.begin(walk, call_.spans.rows[next.segment], next.head());
        for (int step = 0; step < Shape::stages - 1; ++step) loader.issue(walk, step);
        if (!split_.direct_queries) load_queries<T, Shape::dims>(split_, next, queries);
      }
      end_piece(piece, owners);
      piece = next;
      owners = owners_of(piece);
    }
    wait_for_copies<0>();
  }

 private:
  using Part = RowPart<Shape::dims>;
  static constexpr int dims = Shape::dims;
  static constexpr int slot_floats = tile_rows * (dims + 2);

  __device__ __forceinline__ float* slot(int64_t number) const { return split_.partials + number * slot_floats; }
  static __device__ __forceinline__ float* slot_sums(float* slot, int row) { return slot + tile_rows * dims + 2 * row; }

  /// A stage of 8-bit floats as half floats.
  __device__ __forceinline__ unsigned widen_stage(unsigned stage) const {
    constexpr int unit_elements = unit_keys * dims;
#pragma unroll
    for (int i = 0; i < 2 * Shape::block / unit_keys * (dims / 32); ++i) {
      const int unit = i / (dims / 32);
      widen_part<dims>(memory_.work + unit * unit_elements * 2, stage + unit * unit_elements, i % (dims / 32));
    }
    __syncwarp();
    return memory_.work;
  }

  /// The blocks that have a share of a lane.
  struct Owners {
    int first = 0;
    int count = 1;
  };

  __device__ __forceinline__ Owners owners_of(const Piece& piece) const {
    if (piece.whole()) return {};
    const int first = share_.shares.owner(piece.lane_at);
    return {first, share_.shares.owner(piece.lane_at + piece.span.quanta - 1) - first + 1};
  }

  /// The warps' sums are in registers: they become results, partial sums, or part of the running total.
  __device__ void end_piece(const Piece& piece, const Owners& owners) {
    if (Shape::invariant && !piece.whole()) {
      save_split(slot((piece.lane_at + piece.begin) * plan_warps + threadIdx.x / 32), piece.rows());
    } else {
      for (int row = 0; row < piece.rows(); row += Shape::merge_rows) merge_warps(piece, row);
    }
    if (piece.whole() || piece.end < piece.share_end) return;
    if (arrived_last(owners)) merge_partials(piece, owners);
  }

  /// Writes this warp's sums of rows [first, first + count) with `stride` floats between rows.
  __device__ __forceinline__ void save_rows(float* values, float* sums, int first, int count) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = threadIdx.x % 32 / 4 + 8 * half - first;
      if (row < 0 || row >= count) continue;
      sums_.store(values + row * dims, sums + 2 * row, half);
    }
  }
  __device__ __forceinline__ void save_split(float* to, int rows) const { save_rows(to, slot_sums(to, 0), 0, rows); }

  /// Merges rows [first, first + merge_rows) of the four warps in ascending order; a warp has one of these rows.
  __device__ void merge_warps(const Piece& piece, int first) {
    const int warp = threadIdx.x / 32;
    constexpr int rows = Shape::merge_rows;
    save_rows(memory_.merge + warp * rows * dims, memory_.merge_sums + warp * rows * 2, first, rows);
    __syncthreads();
    const int row = first + warp;
    if (row < piece.rows()) {
      Part part;
      if (Shape::invariant && piece.begin > 0) part.load(memory_.total + row * dims, memory_.total_sums + 2 * row);
#pragma unroll
      for (int from = 0; from < plan_warps; ++from) {
        Part later;
        later.load(memory_.merge + (from * rows + warp) * dims, memory_.merge_sums + (from * rows + warp) * 2);
        part.fold(later);
      }
      if (piece.end < piece.share_end) {
        part.store(memory_.total + row * dims, memory_.total_sums + 2 * row);
      } else if (piece.whole()) {
        part.write(call_, piece, row);
      } else {
        float* const to = slot(2 * blockIdx.x + (piece.share_begin == 0 ? 1 : 0));
        part.store(to + row * dims, slot_sums(to, row));
      }
    }
    __syncthreads();
  }

  /// Whether all other blocks that have a share of the lane have saved their sums.
  __device__ bool arrived_last(const Owners& owners) {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
      last = count_arrival(split_.arrivals + owners.first) == static_cast<unsigned>(owners.count - 1);
      if (last) split_.arrivals[owners.first] = 0;
    }
    __syncthreads();
    return last;
  }

  __device__ void merge_partials(const Piece& piece, const Owners& owners) {
    const int64_t count = Shape::invariant ? int64_t{piece.span.quanta} * plan_warps : owners.count;
    for (int row = threadIdx.x / 32; row < piece.rows(); row += plan_warps) {
      Part part;
#pragma unroll 8
      for (int64_t i = 0; i < count; ++i) {
        float* from;
        if (Shape::invariant) {
          from = slot(piece.lane_at * plan_warps + i);
        } else {
          from = slot(i == 0 ? 2 * owners.first + 1 : 2 * (owners.first + i));
        }
        Part later;
        later.load_global(from + row * dims, slot_sums(from, row));
        part.fold(later);
      }
      part.write(call_, piece, row);
    }
  }

  const SplitCall& split_;
  const AttentionCall& call_;
  SplitMemory<Shape> memory_;
  Share share_;
  std::conditional_t<Shape::narrow, NarrowSums<dims>, RowSums<T, dims>> sums_;
};

template <typename T, typename Shape>
__global__ void __launch_bounds__(plan_threads, Shape::residents)
    attend_split(const __grid_constant__ SplitCall split) {
  extern __shared__ __align__(128) std::byte memory[];
  allow_next();
  if (!split.early) wait_for_previous();
  SplitBlock<T, Shape>(split, memory).run();
}

template <typename T, typename Shape>
void launch_split(Queue queue, const SplitCall& split) {
  static const bool allowed = allow_shared(attend_split<T, Shape>, Shape::shared_bytes);
  static_cast<void>(allowed);
  launch(queue, attend_split<T, Shape>, static_cast<unsigned>(split.blocks), plan_threads, Shape::shared_bytes, split);
}

template <typename T, bool f8 = false>
void launch_split_as(Queue queue, const SplitCall& split, int dims) {
  const auto with = [&]<bool invariant>(std::bool_constant<invariant>) {
    if (dims == 64) return launch_split<T, SplitShape<64, invariant, f8>>(queue, split);
    if (dims == 128) return launch_split<T, SplitShape<128, invariant, f8>>(queue, split);
    return launch_split<T, SplitShape<256, invariant, f8>>(queue, split);
  };
  queue.batch_invariant ? with(std::true_type{}) : with(std::false_type{});
}
#endif

}  // namespace quern::cuda
