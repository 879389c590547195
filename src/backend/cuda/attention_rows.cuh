// Attention of prompts where warpgroup instructions do not serve: in the batch-invariant mode, for head sizes that are
// no whole panels, and on older GPUs. A block's eight warps have 16 query rows each and share blocks of keys; what a
// row gets is computed as attention_split.cuh does it, to the bit: sums of splits made from nothing, merged in
// ascending order.
#pragma once

#include "backend/cuda/attention_prompt_plan.cuh"
#include "backend/cuda/attention_split.cuh"

namespace quern::cuda {

/// With `is_f8` stages hold 8-bit floats, which become half floats in memory of their own.
template <int head_dims, bool is_f8>
struct RowsShape {
  static constexpr bool f8 = is_f8;
  static constexpr int dims = head_dims;
  static constexpr int block = SplitShape<dims, true>::block;
  static constexpr int stages = dims == 256 ? 2 : 4;
  static constexpr int warps = prompt_rows / tile_rows;
  static constexpr int threads = 32 * warps;

  static constexpr int query_bytes = tile_rows * dims * 2;  // of a warp
  static constexpr int element_bytes = f8 ? 1 : 2;
  static constexpr int stage_bytes = 2 * block * dims * element_bytes;
  static constexpr int work_bytes = f8 ? 2 * block * dims * 2 : 0;
  static constexpr int total_bytes = prompt_rows * dims * 4;
  static constexpr int shared_bytes = warps * query_bytes + stages * stage_bytes + work_bytes + total_bytes;
};

#ifdef __CUDACC__
/// The work of one block.
template <typename T, typename Shape>
class RowsBlock {
 public:
  __device__ RowsBlock(const SplitCall& split, const PromptShare& share, std::byte* memory)
      : split_(split), call_(split.call), share_(share) {
    queries_ = shared_address(memory) + threadIdx.x / 32 * Shape::query_bytes;
    ring_ = shared_address(memory) + Shape::warps * Shape::query_bytes;
    work_ = ring_ + Shape::stages * Shape::stage_bytes;
    totals_ = reinterpret_cast<float4*>(memory + (work_ - shared_address(memory)) + Shape::work_bytes) + threadIdx.x;
  }

  __device__ void run(Passage passage) {
    do {
      __syncthreads();  // nobody reads the keys of the passage before
      look(passage);
      load_queries(passage);
      attend(passage);
      write(passage);
    } while (share_.advance(passage, call_));
  }

 private:
  using Element = std::conditional_t<Shape::f8, E4m3, T>;
  static constexpr int dims = Shape::dims;
  static constexpr int block = Shape::block;
  static constexpr int units = block / unit_keys;
  static constexpr int unit_bytes = unit_keys * dims * Shape::element_bytes;
  static constexpr int unit_parts = unit_bytes / 512;  // that a warp copies at once

  __device__ __forceinline__ int row_of(int half) const {
    return threadIdx.x / 32 * tile_rows + threadIdx.x % 32 / 4 + 8 * half;
  }

  /// What the thread's rows see, and sums of nothing.
  __device__ __forceinline__ void look(const Passage& passage) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int number = passage.first_row() + row_of(half);
      rows_[half] = {0, 0};
      if (number < passage.prompt.rows) {
        const int position = call_.spans.positions[passage.prompt.begin + number / call_.group];
        rows_[half] = {call_.sight.first_key(position), call_.sight.end_key(position, passage.prompt.last)};
      }
      maximum_[half] = -INFINITY;
      total_[half] = 0.0F;
    }
    end_ = __reduce_max_sync(all_lanes, max(rows_[0].end, rows_[1].end));
#pragma unroll
    for (int i = 0; i < dims / 8; ++i) totals_[i * Shape::threads] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
  }

  /// Each warp: its own rows.
  __device__ __forceinline__ void load_queries(const Passage& passage) const {
    constexpr int row_chunks = dims / chunk_dims;
    for (int i = threadIdx.x % 32; i < tile_rows * row_chunks; i += 32) {
      const int row = i / row_chunks;
      const int chunk = i % row_chunks;
      const int number = passage.first_row() + threadIdx.x / 32 * tile_rows + row;
      const bool real = number < passage.prompt.rows && chunk * chunk_dims < call_.pages.head_dim;
      const int64_t at =
          row_begin(call_, passage.prompt.begin, passage.head, number, call_.q_stride) + chunk * chunk_dims;
      load_query<T>(split_, queries_ + chunk_offset(row, chunk), at, real);
    }
  }

  /// All keys of the passage, in blocks at fixed positions.
  __device__ __forceinline__ void attend(const Passage& passage) {
    const int first = passage.first / block;
    const int count = (passage.end + block - 1) / block - first;
#pragma unroll
    for (int step = 0; step < Shape::stages - 1; ++step) issue(passage, first + step, step, step < count);
    sums_.clear();
    Sight sight = call_.sight;
    if constexpr (Shape::f8) sight.scale *= call_.pages.key_scale(passage.head);
    for (int step = 0; step < count; ++step) {
      wait_for_copies<Shape::stages - 2>();
      __syncthreads();
      const int next = step + Shape::stages - 1;
      issue(passage, first + next, next, next < count);
      const int key = (first + step) * block;
      const unsigned stage = ring_ + step % Shape::stages * Shape::stage_bytes;
      const unsigned keys = Shape::f8 ? widened(stage) : stage;
      if (key < end_) {
        sums_.template add<block>(queries_, keys, keys + block * dims * 2, key, rows_, sight.scale * 1.442695041F,
                                  sight);
      }
      if ((key + block) % split_keys == 0 || step + 1 == count) fold();
    }
    wait_for_copies<0>();
  }

  /// A stage of 8-bit floats as half floats, made by all warps.
  __device__ __forceinline__ unsigned widened(unsigned stage) const {
#pragma unroll
    for (int i = 0; i < 2 * units * unit_parts / Shape::warps; ++i) {
      const int part = i * Shape::warps + threadIdx.x / 32;
      const int unit = part / unit_parts;
      widen_part<dims>(work_ + unit * unit_keys * dims * 2, stage + unit * unit_bytes, part % unit_parts);
    }
    __syncthreads();
    return work_;
  }

  /// Sends for a block of keys.
  __device__ __forceinline__ void issue(const Passage& passage, int number, int step, bool real) const {
    const Pages& pages = call_.pages;
    const unsigned stage = ring_ + step % Shape::stages * Shape::stage_bytes;
#pragma unroll
    for (int i = 0; i < 2 * units * unit_parts / Shape::warps; ++i) {
      const int part = i * Shape::warps + threadIdx.x / 32;
      const int unit = part / unit_parts % units;
      const bool values = part / unit_parts >= units;
      const int key = number * block + unit * unit_keys;
      const bool seen = real && key < passage.end && key + unit_keys > passage.first;
      const int* table = pages.table + call_.spans.rows[passage.segment] * pages.table_stride;
      const int page = seen ? table[key / pages.page_tokens] : 0;
      const Element* from = pages.unit<const Element>(page, passage.head, key) + (values ? pages.values_after() : 0);
      if (!real) continue;
      const unsigned to = stage + (part / unit_parts) * unit_bytes;
      if constexpr (Shape::f8) {
        copy_part<dims, NarrowOrder::plain>(to, from, part % unit_parts, pages.head_dim, passage.first - key,
                                            passage.end - key);
      } else {
        copy_part<T, dims>(to, from, part % unit_parts, pages.head_dim, passage.first - key, passage.end - key);
      }
    }
    end_copies();
  }

  /// The sums of a split are added to those of the splits before.
  __device__ __forceinline__ void fold() {
    sums_.finish();
    const Rescale rescale[2] = {{maximum_[0], sums_.maximum[0]}, {maximum_[1], sums_.maximum[1]}};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      maximum_[half] = rescale[half].maximum;
      total_[half] = rescale[half].add(total_[half], sums_.total[half]);
    }
#pragma unroll
    for (int i = 0; i < dims / 8; ++i) {
      float4 total = totals_[i * Shape::threads];
      total.x = rescale[0].add(total.x, sums_.values[i][0]);
      total.y = rescale[0].add(total.y, sums_.values[i][1]);
      total.z = rescale[1].add(total.z, sums_.values[i][2]);
      total.w = rescale[1].add(total.w, sums_.values[i][3]);
      totals_[i * Shape::threads] = total;
    }
    sums_.clear();
  }

  __device__ __forceinline__ void write(const Passage& passage) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int number = passage.first_row() + row_of(half);
      if (number >= passage.prompt.rows) continue;
      auto* const to = static_cast<uint16_t*>(call_.out) +
                       row_begin(call_, passage.prompt.begin, passage.head, number, call_.out_stride);
      const float factor = last_factor(call_, passage.head, number, maximum_[half], total_[half]);
      for (int i = 0; i < dims / 8; ++i) {
        const int column = i * 8 + threadIdx.x % 4 * 2;
        if (column >= call_.pages.head_dim) continue;
        const float4 total = totals_[i * Shape::threads];
        const float low = (half == 0 ? total.x : total.z) * factor;
        const float high = (half == 0 ? total.y : total.w) * factor;
        *reinterpret_cast<unsigned*>(to + column) =
            call_.activations == Dtype::f16 ? pack<Half>(low, high) : pack<Bf16>(low, high);
      }
    }
  }

  const SplitCall& split_;
  const AttentionCall& call_;
  const PromptShare& share_;
  unsigned queries_;  // of this warp
  unsigned ring_;
  unsigned work_;
  float4* totals_;  // of this thread, one for each eight dims, of the splits before
  RowSight rows_[2];
  int end_;  // of the keys that any row of the warp sees
  RowSums<T, dims> sums_;
  float maximum_[2];  // of the splits before
  float total_[2];
};

template <typename T, typename Shape>
__global__ void __launch_bounds__(Shape::threads, 1) attend_rows(const __grid_constant__ SplitCall split) {
  extern __shared__ __align__(128) std::byte memory[];
  allow_next();
  wait_for_previous();
  PromptShare share;
  share.quantum = Shape::block;
  share.short_rows = split.short_rows;
  share.cuts = false;
  Passage passage;
  if (begin_share<Shape::threads>(share, passage, split.call)) RowsBlock<T, Shape>(split, share, memory).run(passage);
}

template <typename T, typename Shape>
void launch_rows(Queue queue, const SplitCall& split) {
  static const bool allowed = allow_shared(attend_rows<T, Shape>, Shape::shared_bytes);
  static_cast<void>(allowed);
  launch(queue, attend_rows<T, Shape>, static_cast<unsigned>(native(queue).multiprocessors), Shape::threads,
         Shape::shared_bytes, split);
}

template <typename T, bool f8 = false>
void launch_rows_as(Queue queue, const SplitCall& split, int dims) {
  if (dims == 64) return launch_rows<T, RowsShape<64, f8>>(queue, split);
  if (dims == 128) return launch_rows<T, RowsShape<128, f8>>(queue, split);
  launch_rows<T, RowsShape<256, f8>>(queue, split);
}
#endif

}  // namespace quern::cuda
