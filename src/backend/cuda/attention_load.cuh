// How warps of attention bring units of keys and values into shared memory: which ones, and in what order they lie
// there.
#pragma once

#include "backend/cuda/attention_plan.cuh"
#include "backend/cuda/attention_tile_f8.cuh"

namespace quern::cuda {

#ifdef __CUDACC__
/// The blocks of keys that a warp adds for a piece, and what its rows see.
struct Walk {
  RowSight rows[2];
  int first = 0;  // keys that any row sees
  int end = 0;
  int base = 0;  // number of the warp's first block of keys
  int stride = 1;
  int count = 0;

  template <typename Shape>
  __device__ __forceinline__ void begin(const AttentionCall& call, const Piece& piece) {
    const int lane = threadIdx.x % 32;
    RowSight mine{1 << 30, 0};
    if (lane < piece.rows()) {
      const int position = call.spans.positions[piece.span.begin + (piece.first_row() + lane) / call.group];
      if (position >= 0) mine = {call.sight.first_key(position), call.sight.end_key(position, piece.span.last)};
    }
    first = __reduce_min_sync(all_lanes, mine.first);
    end = __reduce_max_sync(all_lanes, mine.end);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = lane / 4 + 8 * i;
      rows[i].first = __shfl_sync(all_lanes, mine.first, row);
      rows[i].end = __shfl_sync(all_lanes, mine.end, row);
      if (row >= piece.rows()) rows[i] = {0, 1 << 30};  // nobody's: never written
    }
    const int warp = threadIdx.x / 32;
    constexpr int blocks = Shape::quantum / Shape::block;
    int low = (piece.span.first + piece.begin) * blocks;
    int high = (piece.span.first + piece.end) * blocks;
    if constexpr (Shape::invariant) {
      low += warp * (blocks / plan_warps);
      high = low + blocks / plan_warps;
    }
    low = max(low, first / Shape::block);
    high = min(high, (end + Shape::block - 1) / Shape::block);
    stride = Shape::invariant ? 1 : plan_warps;
    base = Shape::invariant ? low : low + warp;
    count = max(0, (high - base + stride - 1) / stride);
  }

  /// How many of its blocks hold only keys before `position`.
  template <typename Shape>
  __device__ __forceinline__ int blocks_before(int position) const {
    const int whole = max(0, position) / Shape::block - base;
    return min(count, max(0, (whole + stride - 1) / stride));
  }
};

/// A warp copies one of dims / 16 parts of a unit: rows [first, end), and zeros for the others.
template <typename T, int dims>
__device__ __forceinline__ void copy_part(unsigned to, const T* from, int part, int head_dim, int first, int end) {
  const int lane = threadIdx.x % 32;
  const int row = lane / 8 + part % 4 * 4;
  bool real = row >= first && row < end;
  const T* source = from + (lane + 32 * part) * chunk_dims;
  if (head_dim != dims) {
    const int panel = part / 4;
    const int width = min(panel_dims, head_dim - panel * panel_dims);
    if (width < panel_dims) {
      const int dim = (lane % 8 ^ row % 8) * chunk_dims;
      real = real && dim < width;
      source = from + panel * panel_dims * unit_keys + row * width + dim;
    }
  }
  copy_chunk(to + (lane + 32 * part) * 16, real ? source : from, real);
}

/// The same of 8-bit floats, which lie [key, dims]; one of dims / 32 parts.
template <int dims, NarrowOrder order>
__device__ __forceinline__ void copy_part(unsigned to, const E4m3* from, int part, int head_dim, int first, int end) {
  constexpr int pieces = dims / 16;  // of a key
  const int index = threadIdx.x % 32 + 32 * part;
  const int row = index / pieces;
  const int dim = index % pieces * 16;
  const bool real = row >= first && row < end && dim < head_dim;
  copy_chunk(to + narrow_offset<dims, order>(row, index % pieces), real ? from + row * head_dim + dim : from, real);
}

/// A warp makes half floats of one of these parts, in panels.
template <int dims>
__device__ __forceinline__ void widen_part(unsigned to, unsigned from, int part) {
  constexpr int pieces = dims / 16;
  const int index = threadIdx.x % 32 + 32 * part;
  const int piece = index % pieces;
  unsigned values[4];
  load_piece(values, from + 16 * index);
  store_widened(to + piece / 4 * (unit_keys * 128), index / pieces, piece, values);
}

/// Brings the blocks of a walk into a warp's ring of stages.
template <typename T, typename Shape>
class Loader {
  using Element = std::conditional_t<Shape::f8, E4m3, T>;

 public:
  __device__ __forceinline__ Loader(const AttentionCall& call, unsigned ring) : pages_(call.pages), ring_(ring) {}

  /// Turns to a walk; its pages are in row `row` of the table.
  __device__ __forceinline__ void begin(const Walk& walk, int row, int head) {
    table_ = pages_.table + row * pages_.table_stride;
    head_ = head;
    current_ = unit_at(walk, 0, page_of(walk, 0));
    upcoming_ = page_of(walk, 1);
  }

  /// Sends for block `step` of the walk, if there is one.
  __device__ __forceinline__ void issue(const Walk& walk, int step) {
    if (step < walk.count) {
      if (step > 0 && step % batch == 0) {
        current_ = unit_at(walk, step / batch, upcoming_);
        upcoming_ = page_of(walk, step / batch + 1);
      }
#pragma unroll
      for (int unit = 0; unit < units; ++unit) {
        const int key = (walk.base + step * walk.stride) * Shape::block + unit * unit_keys;
        const Element* from = of_lane(current_, (step * units + unit) % 32);
        const unsigned to = stage(step) + unit * unit_bytes;
        copy_unit<keys_order>(to, from, walk.first - key, walk.end - key);
        copy_unit<values_order>(to + units * unit_bytes, from + pages_.values_after(), walk.first - key,
                                walk.end - key);
      }
    }
    end_copies();
  }
  __device__ __forceinline__ unsigned stage(int step) const {
    return ring_ + step % Shape::stages * Shape::stage_bytes;
  }

 private:
  static constexpr int units = Shape::block / unit_keys;
  static constexpr int batch = 32 / units;  // blocks whose page numbers the lanes hold
  static constexpr int unit_bytes = unit_keys * Shape::dims * Shape::element_bytes;
  static constexpr NarrowOrder keys_order = Shape::narrow ? NarrowOrder::keys : NarrowOrder::plain;
  static constexpr NarrowOrder values_order = Shape::narrow ? NarrowOrder::values : NarrowOrder::plain;

  static __device__ __forceinline__ int key_of(const Walk& walk, int number) {
    const int unit = number * 32 + threadIdx.x % 32;
    return (walk.base + unit / units * walk.stride) * Shape::block + unit % units * unit_keys;
  }
  /// Each lane gets the page of one unit; 0 if no row sees any of its keys.
  __device__ __forceinline__ int page_of(const Walk& walk, int number) const {
    const int key = key_of(walk, number);
    const bool seen = number * batch + static_cast<int>(threadIdx.x) % 32 / units < walk.count && key < walk.end &&
                      key + unit_keys > walk.first;
    return seen ? table_[key / pages_.page_tokens] : 0;
  }
  /// And where that is.
  __device__ __forceinline__ const Element* unit_at(const Walk& walk, int number, int page) const {
    return pages_.template unit<const Element>(page, head_, key_of(walk, number));
  }

  /// Rows [first, end) of a unit, zeros for the others. Most units are whole: their path is kept short, as a step's
  /// kernels find the instruction cache cold.
  template <NarrowOrder order>
  __device__ __forceinline__ void copy_unit(unsigned to, const Element* from, int first, int end) const {
    constexpr int parts = Shape::dims * Shape::element_bytes / 32;
    constexpr int row_chunks = Shape::dims * Shape::element_bytes / 16;
    if (first <= 0 && end >= unit_keys && pages_.head_dim == Shape::dims) {
      const int lane_bytes = threadIdx.x % 32 * 16;
      const std::byte* source = reinterpret_cast<const std::byte*>(from) + lane_bytes;
#pragma unroll
      for (int i = 0; i < parts; ++i) {
        const int chunk = threadIdx.x % 32 + 32 * i;
        const unsigned at = order == NarrowOrder::plain
                                ? 16 * chunk
                                : narrow_offset<Shape::dims, order>(chunk / row_chunks, chunk % row_chunks);
        copy_chunk(to + at, source + 512 * i, true);
      }
      return;
    }
#pragma unroll 1
    for (int i = 0; i < parts; ++i) {
      if constexpr (Shape::f8) {
        copy_part<Shape::dims, order>(to, from, i, pages_.head_dim, first, end);
      } else {
        copy_part<T, Shape::dims>(to, from, i, pages_.head_dim, first, end);
      }
    }
  }

  const Pages& pages_;
  unsigned ring_;
  const int* table_ = nullptr;
  int head_ = 0;
  const Element* current_ = nullptr;  // the lane's unit of 32 that are sent for
  int upcoming_ = 0;                  // the page of its unit among the next 32
};
#endif

}  // namespace quern::cuda
