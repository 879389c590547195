// Attention of prompts on warpgroup instructions (sm_90a). A block has a tile of 128 query rows, 64 for each of two
// warpgroups that compute; a third brings pages and queries into shared memory, with a fourth where 8-bit floats have
// to become half floats. While a warpgroup softens scores, the values of the keys before are being added.
#pragma once

#include "backend/cuda/attention_prompt_bring.cuh"

namespace quern::cuda {

#ifdef __CUDACC__
/// A warpgroup that computes 64 rows of every tile. A thread has rows g = lane / 4 and g + 8 of its warp's sixteen, and
/// of every eight columns the two at 2 * (lane % 4).
template <typename T, typename Shape>
class PromptGroup {
 public:
  __device__ PromptGroup(const PromptMemory<Shape>& memory, const SplitCall& split)
      : memory_(memory), split_(split), call_(split.call) {
    group_ = of_warp(static_cast<int>(threadIdx.x) / 128 - Shape::bringing_groups);
    thread_ = threadIdx.x % 128;
  }

  __device__ void run() {
    if (group_ == 1) pass_turn();  // the first is the other's
    int n = 0;
    for (int passages = 0;; ++passages) {
      wait_for(memory_.queries_there(passages), PromptMemory<Shape>::parity(passages, Shape::query_stages));
      const Brief& brief = memory_.brief(passages);
      if (of_warp(brief.any) == 0) return;
      look(memory_.sights(passages));
      scale_ = call_.sight.scale;
      if constexpr (Shape::scaled) scale_ *= call_.pages.key_scale(brief.head);
      n = attend(brief, passages, n);
#pragma unroll
      for (float& sum : total_) {
        sum += __shfl_xor_sync(all_lanes, sum, 1);
        sum += __shfl_xor_sync(all_lanes, sum, 2);
      }
      if (brief.owners > 1) {
        save(slot(2 * blockIdx.x + brief.begins));
        if (!arrived_last(brief)) continue;
        merge(brief);
      }
      write(brief);
    }
  }

 private:
  static constexpr int dims = Shape::dims;
  static constexpr int block = Shape::block;
  static constexpr int columns = dims < 128 ? dims : 128;  // of one product
  static constexpr int first_turn = 3;                     // barriers: 1 and 2 are of each warpgroup alone
  static constexpr int parts = dims / columns;

  __device__ __forceinline__ int row_of(int half) const {
    return group_ * 64 + thread_ / 32 * 16 + thread_ % 32 / 4 + 8 * half;
  }

  /// What the thread's rows see, and sums of nothing.
  __device__ __forceinline__ void look(const RowSight* sights) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows_[half] = sights[row_of(half)];
      maximum_[half] = -INFINITY;
      total_[half] = 0.0F;
    }
    lowest_end_ = __reduce_min_sync(all_lanes, min(rows_[0].end, rows_[1].end));
    highest_first_ = __reduce_max_sync(all_lanes, max(rows_[0].first, rows_[1].first));
#pragma unroll
    for (auto& part : sums_) {
#pragma unroll
      for (float& value : part) value = 0.0F;
    }
  }

  /// Adds all quanta of a passage, of which `n` is the first this block sees; returns the number after the last.
  __device__ __forceinline__ int attend(const Brief& brief, int passages, int n) {
    const unsigned queries = memory_.queries(passages);
    const int first_quantum = of_warp(brief.quantum);
    const int end_quantum = of_warp(brief.end_quantum);
    const int real_from = brief.first / unit_keys * unit_keys;
    const int real_to = brief.last + 1;
    if (first_quantum == end_quantum) {
      release(memory_.queries_done(passages));
      return n;
    }
    unsigned weights[block / 16][4];
    float rescale[2];
    {
      float scores[block / 2];
      multiply_keys(scores, queries, n);
      wait_for_products<0>();
      release(memory_.done(Side::keys, n));
      soften(scores, rescale, first_quantum * block);
      pack_weights(weights, scores);
    }
    for (int quantum = first_quantum + 1; quantum < end_quantum; ++quantum) {
      ++n;
      float scores[block / 2];
      take_turn();
      multiply_keys(scores, queries, n);
      add_values(real_from - (quantum - 1) * block, real_to - (quantum - 1) * block, n - 1, weights);
      pass_turn();
      wait_for_products<1>();
      release(memory_.done(Side::keys, n));
      soften(scores, rescale, quantum * block);
      // Sums of weights are not negative; but the compiler does not know, and so waits no earlier than it has them.
      if (total_[0] + total_[1] < 0.0F) __trap();
      wait_for_products<0>();
      release(memory_.done(Side::values, n - 1));
      if (__any_sync(all_lanes, rescale[0] != 1.0F || rescale[1] != 1.0F)) rescale_sums(rescale);
      pack_weights(weights, scores);
    }
    release(memory_.queries_done(passages));
    add_values(real_from - (end_quantum - 1) * block, real_to - (end_quantum - 1) * block, n, weights);
    wait_for_products<0>();
    release(memory_.done(Side::values, n));
    return n + 1;
  }

  __device__ __forceinline__ void rescale_sums(const float (&rescale)[2]) {
#pragma unroll
    for (auto& part : sums_) {
#pragma unroll
      for (int i = 0; i < columns / 2; ++i) part[i] *= rescale[i / 2 % 2];
    }
  }

  static __device__ __forceinline__ void pack_weights(unsigned (&weights)[block / 16][4],
                                                      const float (&scores)[block / 2]) {
#pragma unroll
    for (int i = 0; i < block / 16; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) weights[i][j] = pack<T>(scores[8 * i + 2 * j], scores[8 * i + 2 * j + 1]);
    }
  }

  // The two warpgroups start their products in turns: while one softens scores, the other multiplies.
  __device__ __forceinline__ void take_turn() const { sync_threads(first_turn + group_, 256); }
  __device__ __forceinline__ void pass_turn() const { arrive_threads(first_turn + (group_ ^ 1), 256); }

  __device__ __forceinline__ void release(unsigned barrier) const {
    if (thread_ % 32 == 0) arrive(barrier);
  }

  /// Starts scores = queries * keys.
  __device__ __forceinline__ void multiply_keys(float (&scores)[block / 2], unsigned queries, int n) const {
    wait_for(memory_.there(Side::keys, n), PromptMemory<Shape>::parity(n, Shape::stages));
    const unsigned from = describe(queries + group_ * (64 * 128), 16);
    const unsigned keys = describe(memory_.tile(Side::keys, n), 16);
    begin_products();
#pragma unroll
    for (int step = 0; step < dims / 16; ++step) {
      const int at = step % 4 * 2;
      warpgroup_product<T, block>(scores, described(from + step / 4 * (Shape::query_panel_bytes / 16) + at),
                                  described(keys + step / 4 * (Shape::panel_bytes / 16) + at), step > 0);
    }
    end_products();
  }

  /// Starts sums += weights * values, of which those in rows [real_from, real_to) exist.
  __device__ __forceinline__ void add_values(int real_from, int real_to, int n,
                                             const unsigned (&weights)[block / 16][4]) {
    wait_for(memory_.there(Side::values, n), PromptMemory<Shape>::parity(n, Shape::stages));
    const unsigned values = memory_.tile(Side::values, n);
    if (real_from > 0 || real_to < block) clear_values(values, real_from, real_to);
    const unsigned from = describe(values, Shape::panel_bytes);
    begin_products();
#pragma unroll
    for (int step = 0; step < block / 16; ++step) {
#pragma unroll
      for (int part = 0; part < parts; ++part) {
        const int at = part * (columns / panel_dims) * (Shape::panel_bytes / 16) + step * 128;
        warpgroup_weigh<T, columns>(sums_[part], weights[step], described(from + at), 1);
      }
    }
    end_products();
  }

  /// Values that do not exist become zeros: their weights are zero, but what lies there may be no numbers.
  __device__ void clear_values(unsigned values, int from, int to) const {
    constexpr int row_chunks = dims / chunk_dims;
    for (int i = thread_; i < block * row_chunks; i += 128) {
      const int row = i / row_chunks;
      const int chunk = i % row_chunks;
      if (row >= from && row < to) continue;
      asm volatile("st.shared.v4.b32 [%0], {%1,%1,%1,%1};" ::"r"(values + chunk / 8 * Shape::panel_bytes + row * 128 +
                                                                 chunk % 8 * 16),
                   "r"(0)
                   : "memory");
    }
    show_stores();
    sync_threads(1 + group_, 128);
  }

  /// Scores become weights relative to the new maximum; sums so far have to be multiplied by `rescale`.
  __device__ __forceinline__ void soften(float (&scores)[block / 2], float (&rescale)[2], int key) {
    constexpr float log2_e = 1.442695041F;
    const float softcap = call_.sight.softcap;
    float factor = scale_ * log2_e;
    if (softcap > 0.0F) {
#pragma unroll
      for (float& score : scores) score = softcap * log2_e * fast_tanh(score * (scale_ / softcap));
      factor = 1.0F;
    }
    if (key + block > lowest_end_ || key < highest_first_) {
#pragma unroll
      for (int i = 0; i < block / 2; ++i) {
        const int at = key + i / 4 * 8 + thread_ % 4 * 2 + i % 2;
        const RowSight& row = rows_[i / 2 % 2];
        if (at < row.first || at >= row.end) scores[i] = -INFINITY;
      }
    }
    grow_maximum(scores, rescale, factor);
    float base[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) base[half] = maximum_[half] == -INFINITY ? 0.0F : maximum_[half] * factor;
#pragma unroll
    for (int i = 0; i < block / 2; ++i) {
      scores[i] = power_of_two(scores[i] * factor - base[i / 2 % 2]);
      total_[i / 2 % 2] += scores[i];
    }
  }

  /// What weights are relative to is only raised when a score is above it by more than 2 to the 8th: this is rare, and
  /// then a warp does it for all its rows.
  __device__ __forceinline__ void grow_maximum(const float (&scores)[block / 2], float (&rescale)[2], float factor) {
    constexpr float enough = 8.0F;
    float best[2] = {-INFINITY, -INFINITY};
    bool grows = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < block / 8; ++i) {
        best[half] = fmaxf(best[half], fmaxf(scores[4 * i + 2 * half], scores[4 * i + 2 * half + 1]));
      }
      grows = grows || !((best[half] - maximum_[half]) * factor <= enough);
      rescale[half] = 1.0F;
    }
    if (!__any_sync(all_lanes, grows)) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      best[half] = fmaxf(best[half], maximum_[half]);
      best[half] = fmaxf(best[half], __shfl_xor_sync(all_lanes, best[half], 1));
      best[half] = fmaxf(best[half], __shfl_xor_sync(all_lanes, best[half], 2));
      rescale[half] = best[half] == -INFINITY ? 1.0F : power_of_two((maximum_[half] - best[half]) * factor);
      maximum_[half] = best[half];
      total_[half] *= rescale[half];
    }
  }

  /// Partial sums of this warpgroup: [dims / 8][128 threads] of four, then [128] maxima and totals.
  __device__ __forceinline__ float4* slot(int number) const {
    return reinterpret_cast<float4*>(split_.partials + int64_t{number} * Shape::slot_floats +
                                     group_ * (Shape::slot_floats / Shape::groups)) +
           thread_;
  }
  __device__ __forceinline__ void save(float4* to) const {
#pragma unroll
    for (int i = 0; i < dims / 8; ++i) {
      const float* four = sums_[i / (columns / 8)] + i % (columns / 8) * 4;
      __stcg(to + i * 128, make_float4(four[0], four[1], four[2], four[3]));
    }
    __stcg(to + dims / 8 * 128, make_float4(log_maximum(0), log_maximum(1), total_[0], total_[1]));
  }
  /// In powers of two.
  __device__ __forceinline__ float log_maximum(int half) const {
    return call_.sight.softcap > 0.0F ? maximum_[half] : maximum_[half] * (scale_ * 1.442695041F);
  }

  /// Whether the same warpgroups of all other blocks that have a share of the lane have saved their sums.
  __device__ bool arrived_last(const Brief& brief) {
    __shared__ bool last[Shape::groups];
    sync_threads(1 + group_, 128);
    if (thread_ == 0) {
      unsigned* const count = split_.arrivals + Shape::groups * brief.first_owner + group_;
      last[group_] = count_arrival(count) == static_cast<unsigned>(brief.owners - 1);
      if (last[group_]) *count = 0;
    }
    sync_threads(1 + group_, 128);
    return last[group_];
  }

  /// The sums of all shares of a lane, in ascending order of keys.
  __device__ void merge(const Brief& brief) {
    float maximum[2] = {-INFINITY, -INFINITY};
    total_[0] = total_[1] = 0.0F;
#pragma unroll
    for (auto& part : sums_) {
#pragma unroll
      for (float& value : part) value = 0.0F;
    }
    for (int number = 0; number < brief.owners; ++number) {
      const float4* from = slot(number == 0 ? 2 * brief.first_owner + 1 : 2 * (brief.first_owner + number));
      const float4 later = __ldcg(from + dims / 8 * 128);
      const float later_maximum[2] = {later.x, later.y};
      const float later_total[2] = {later.z, later.w};
      float scale[2];
      float later_scale[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float best = fmaxf(maximum[half], later_maximum[half]);
        const float base = best == -INFINITY ? 0.0F : best;
        scale[half] = power_of_two(maximum[half] - base);
        later_scale[half] = power_of_two(later_maximum[half] - base);
        maximum[half] = best;
        total_[half] = total_[half] * scale[half] + later_total[half] * later_scale[half];
      }
#pragma unroll
      for (int i = 0; i < dims / 8; ++i) {
        float* four = sums_[i / (columns / 8)] + i % (columns / 8) * 4;
        const float4 x = __ldcg(from + i * 128);
        four[0] = four[0] * scale[0] + x.x * later_scale[0];
        four[1] = four[1] * scale[0] + x.y * later_scale[0];
        four[2] = four[2] * scale[1] + x.z * later_scale[1];
        four[3] = four[3] * scale[1] + x.w * later_scale[1];
      }
    }
  }

  __device__ __forceinline__ void write(const Brief& brief) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int number = brief.first_row + row_of(half);
      if (number >= brief.rows) continue;
      uint16_t* const to = static_cast<uint16_t*>(call_.out) +
                           row_begin(call_, brief.first_token, brief.head, number, call_.out_stride) + thread_ % 4 * 2;
      float factor = total_[half] > 0.0F ? 1.0F / total_[half] : 0.0F;
      if constexpr (Shape::scaled) factor *= call_.pages.value_scale(brief.head);
#pragma unroll
      for (int i = 0; i < dims / 8; ++i) {
        const float* two = sums_[i / (columns / 8)] + i % (columns / 8) * 4 + 2 * half;
        *reinterpret_cast<unsigned*>(to + i * 8) = packed(two[0] * factor, two[1] * factor);
      }
    }
  }

  __device__ __forceinline__ unsigned packed(float low, float high) const {
    if (Shape::scaled && call_.activations == Dtype::bf16) return pack<Bf16>(low, high);
    return pack<T>(low, high);
  }

  const PromptMemory<Shape>& memory_;
  const SplitCall& split_;
  const AttentionCall& call_;
  int group_;
  int thread_;
  RowSight rows_[2];
  int lowest_end_;  // of the rows of the warp
  int highest_first_;
  float sums_[parts][columns / 2];
  float scale_;       // of scores
  float maximum_[2];  // of scores before they are scaled
  float total_[2];
};

template <typename T, typename Shape>
__global__ void __launch_bounds__(Shape::threads, 1) attend_prompts(const __grid_constant__ SplitCall split) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) std::byte memory_begin[];
  allow_next();
  const PromptMemory<Shape> memory(memory_begin);
  if (threadIdx.x == 0) memory.make_barriers();
  wait_for_previous();
  if (Shape::scaled && are_widened(split) != Shape::widened) return;
  PromptShare share;
  share.quantum = Shape::block;
  share.short_rows = split.short_rows;
  share.lane_keys = Shape::lane_keys;
  Passage passage;
  if (!begin_share<Shape::threads>(share, passage, split.call)) return;
  const int warp = threadIdx.x / 32;
  if (warp >= 4 * Shape::bringing_groups) {
    take_registers<Shape::compute_registers>();
    return PromptGroup<T, Shape>(memory, split).run();
  }
  give_registers<Shape::bring_registers>();
  constexpr int bringing = 2 * Shape::sharers;
  if (warp >= bringing + Shape::loaders / 32) return;
  if (warp >= bringing) return bring_queries(memory, split, share, passage, threadIdx.x - 32 * bringing);
  if constexpr (Shape::f8) {
    bring_narrow_pages(memory, split.call, share, passage, warp);
  } else {
    bring_pages<T>(memory, split.call, share, passage, warp == 0 ? Side::keys : Side::values);
  }
#endif
}

template <typename T, typename Shape>
void launch_prompts(Queue queue, const SplitCall& split) {
  static const bool allowed = allow_shared(attend_prompts<T, Shape>, Shape::shared_bytes);
  static_cast<void>(allowed);
  launch(queue, attend_prompts<T, Shape>, static_cast<unsigned>(native(queue).multiprocessors), Shape::threads,
         Shape::shared_bytes, split);
}

template <typename T, Stored stored = Stored::floats>
void launch_prompts_as(Queue queue, const SplitCall& split) {
  switch (split.call.pages.head_dim) {
    case 64: return launch_prompts<T, PromptShape<64, stored>>(queue, split);
    case 128: return launch_prompts<T, PromptShape<128, stored>>(queue, split);
    default: return launch_prompts<T, PromptShape<256, stored>>(queue, split);
  }
}
#endif

}  // namespace quern::cuda
