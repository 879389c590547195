// Attention of prompts on warpgroup instructions (sm_90a). A block has a tile of 128 query rows, 64 for each of two
// warpgroups that compute; a third brings pages and queries into shared memory. While a warpgroup softens scores, the
// values of the keys before are being added.
#pragma once

#include "backend/cuda/attention_prompt_plan.cuh"
#include "backend/cuda/attention_split.h"
#include "backend/cuda/attention_warpgroup.cuh"

namespace quern::cuda {

/// How a head size is computed.
template <int head_dims>
struct PromptShape {
  static constexpr int dims = head_dims;
  static constexpr int panels = dims / panel_dims;
  static constexpr int block = dims == 256 ? 64 : 128;  // keys of a quantum
  static constexpr int stages = 2;
  static constexpr int query_stages = dims == 256 ? 1 : 2;
  static constexpr int groups = 2;  // warpgroups that compute
  static constexpr int threads = 128 * (groups + 1);
  static constexpr int loaders = 96;  // threads that load queries

  static constexpr int query_panel_bytes = prompt_rows * 128;
  static constexpr int query_bytes = panels * query_panel_bytes;
  static constexpr int panel_bytes = block * 128;
  static constexpr int tile_bytes = panels * panel_bytes;  // of keys or values
  static constexpr int alignment = 1024;
  static constexpr int header_bytes = 4096;  // barriers, briefs, what rows see
  static constexpr int shared_bytes = alignment + header_bytes + query_stages * query_bytes + 2 * stages * tile_bytes;

  static constexpr int slot_floats = groups * 128 * (dims / 2 + 4);
};

#ifdef __CUDACC__
/// What the computing warpgroups are told of a passage.
struct Brief {
  int any;      // else there are no more
  int quantum;  // the quanta to do
  int end_quantum;
  int first;        // keys that some row sees
  int last;         // position of the segment's last token
  int first_token;  // of the segment
  int head;         // kv head
  int first_row;    // of the segment's query rows
  int rows;         // that the segment has
  int begins;       // the lane begins here
  int first_owner;  // blocks that have a share of the lane
  int owners;
};

/// Parts of a block's shared memory, and which of them is used for the n-th time.
template <typename Shape>
struct PromptMemory {
  std::byte* header;
  unsigned base;

  __device__ explicit PromptMemory(std::byte* memory) {
    const unsigned begin = shared_address(memory);
    base = (begin + Shape::alignment - 1) / Shape::alignment * Shape::alignment;
    header = memory + (base - begin);
  }

  /// A brief is used for longer than a stage of queries.
  __device__ Brief& brief(int n) const { return reinterpret_cast<Brief*>(header + 256)[n % 4]; }
  __device__ RowSight* sights(int n) const {
    return reinterpret_cast<RowSight*>(header + 1024) + n % Shape::query_stages * prompt_rows;
  }
  __device__ int64_t* row_begins() const { return reinterpret_cast<int64_t*>(header + 3072); }

  __device__ unsigned barrier(int number) const { return base + 8 * number; }
  __device__ unsigned keys_there(int n) const { return barrier(n % Shape::stages); }
  __device__ unsigned values_there(int n) const { return barrier(Shape::stages + n % Shape::stages); }
  __device__ unsigned keys_done(int n) const { return barrier(2 * Shape::stages + n % Shape::stages); }
  __device__ unsigned values_done(int n) const { return barrier(3 * Shape::stages + n % Shape::stages); }
  __device__ unsigned queries_there(int n) const { return barrier(4 * Shape::stages + n % Shape::query_stages); }
  __device__ unsigned queries_done(int n) const { return barrier(4 * Shape::stages + 2 + n % Shape::query_stages); }

  __device__ unsigned queries(int n) const {
    return base + Shape::header_bytes + n % Shape::query_stages * Shape::query_bytes;
  }
  __device__ unsigned keys(int n) const {
    return base + Shape::header_bytes + Shape::query_stages * Shape::query_bytes +
           n % Shape::stages * Shape::tile_bytes;
  }
  __device__ unsigned values(int n) const { return keys(n) + Shape::stages * Shape::tile_bytes; }

  /// Parity of the n-th use of a stage.
  static __device__ unsigned parity(int n, int stages) { return n / stages % 2; }

  /// One thread.
  __device__ void make_barriers() const {
    constexpr int computing_warps = 4 * Shape::groups;
    for (int n = 0; n < Shape::stages; ++n) {
      make_barrier(keys_there(n), 1);
      make_barrier(values_there(n), 1);
      make_barrier(keys_done(n), computing_warps);
      make_barrier(values_done(n), computing_warps);
    }
    for (int n = 0; n < Shape::query_stages; ++n) {
      make_barrier(queries_there(n), Shape::loaders);
      make_barrier(queries_done(n), computing_warps);
    }
    show_barriers();
  }
};

/// One warp: brings all keys and values of a share into shared memory.
template <typename T, typename Shape>
__device__ void bring_pages(const PromptMemory<Shape>& memory, const AttentionCall& call, const PromptShare& share,
                            Passage passage) {
  constexpr unsigned part_bytes = unit_keys * 128;  // of a unit in one panel
  const Pages& pages = call.pages;
  const int lane = threadIdx.x % 32;
  const int unit = lane / Shape::panels;
  const int panel = lane % Shape::panels;
  const unsigned to = panel * Shape::panel_bytes + unit * part_bytes;
  int n = 0;
  do {
    const int* table = pages.table + call.spans.rows[passage.segment] * pages.table_stride;
    // The lane's part of a quantum: its page, or -1 if no row sees it.
    const auto page_of = [&](int quantum) {
      const int key = quantum * Shape::block + unit * unit_keys;
      const bool seen = unit < Shape::block / unit_keys && key + unit_keys > passage.first &&
                        key <= passage.prompt.last && quantum < passage.end_quantum;
      return seen ? table[key / pages.page_tokens] : -1;
    };
    int page = page_of(passage.quantum);
    for (int quantum = passage.quantum; quantum < passage.end_quantum; ++quantum, ++n) {
      const int next_page = page_of(quantum + 1);
      const unsigned bytes = __popc(__ballot_sync(all_lanes, page >= 0)) * part_bytes;
      const T* from = pages.unit<const T>(max(page, 0), passage.head, quantum * Shape::block + unit * unit_keys) +
                      panel * panel_dims * unit_keys;
      const unsigned free = PromptMemory<Shape>::parity(n, Shape::stages) ^ 1;
      wait_for(memory.keys_done(n), free);
      if (lane == 0) arrive_expecting(memory.keys_there(n), bytes);
      __syncwarp();
      if (page >= 0) copy_bytes(memory.keys(n) + to, from, part_bytes, memory.keys_there(n));
      wait_for(memory.values_done(n), free);
      if (lane == 0) arrive_expecting(memory.values_there(n), bytes);
      __syncwarp();
      if (page >= 0) {
        copy_bytes(memory.values(n) + to, from + pages.values_after(), part_bytes, memory.values_there(n));
      }
      page = next_page;
    }
  } while (share.advance(passage, call));
}

__device__ inline void write_brief(Brief& brief, const PromptShare& share, const Passage& passage) {
  brief.any = 1;
  brief.quantum = passage.quantum;
  brief.end_quantum = passage.end_quantum;
  brief.first = passage.first;
  brief.last = passage.prompt.last;
  brief.first_token = passage.prompt.begin;
  brief.head = passage.head;
  brief.first_row = passage.first_row();
  brief.rows = passage.prompt.rows;
  brief.begins = passage.begins ? 1 : 0;
  brief.owners = 1;
  if (passage.whole()) return;
  brief.first_owner = share.shares.owner(passage.lane_at);
  brief.owners = share.shares.owner(passage.lane_at + passage.lane_cost - 1) - brief.first_owner + 1;
}

/// Some warps: bring the query rows of all passages of a share into shared memory, and what the rows see.
template <typename T, typename Shape>
__device__ void bring_queries(const PromptMemory<Shape>& memory, const AttentionCall& call, const PromptShare& share,
                              Passage passage, int thread) {
  constexpr int row_chunks = Shape::dims / chunk_dims;
  constexpr int barrier = 5;  // of these warps
  int n = 0;
  for (bool more = true; more; ++n) {
    wait_for(memory.queries_done(n), PromptMemory<Shape>::parity(n, Shape::query_stages) ^ 1);
    if (thread == 0) write_brief(memory.brief(n), share, passage);
    for (int row = thread; row < prompt_rows; row += Shape::loaders) {
      const int number = passage.first_row() + row;
      RowSight sight{0, 1 << 30};  // nobody's: never written
      int64_t begin = -1;
      if (number < passage.prompt.rows) {
        const int position = call.spans.positions[passage.prompt.begin + number / call.group];
        sight = {call.sight.first_key(position), call.sight.end_key(position, passage.prompt.last)};
        begin = row_begin(call, passage.prompt.begin, passage.head, number, call.q_stride);
      }
      memory.sights(n)[row] = sight;
      memory.row_begins()[row] = begin;
    }
    sync_threads(barrier, Shape::loaders);
#pragma unroll 4
    for (int i = thread; i < prompt_rows * row_chunks; i += Shape::loaders) {
      const int row = i / row_chunks;
      const int chunk = i % row_chunks;
      const int64_t begin = memory.row_begins()[row];
      const unsigned to = chunk / 8 * Shape::query_panel_bytes + row * 128 + (chunk % 8 ^ row % 8) * 16;
      copy_chunk(memory.queries(n) + to, static_cast<const T*>(call.q) + max(begin, int64_t{0}) + chunk * chunk_dims,
                 begin >= 0);
    }
    end_copies();
    more = share.advance(passage, call);
    wait_for_copies<0>();
    show_stores();
    sync_threads(barrier, Shape::loaders);
    arrive(memory.queries_there(n));
  }
  wait_for(memory.queries_done(n), PromptMemory<Shape>::parity(n, Shape::query_stages) ^ 1);
  if (thread == 0) memory.brief(n).any = 0;
  arrive(memory.queries_there(n));
}

/// A warpgroup that computes 64 rows of every tile. A thread has rows g = lane / 4 and g + 8 of its warp's sixteen, and
/// of every eight columns the two at 2 * (lane % 4).
template <typename T, typename Shape>
class PromptGroup {
 public:
  __device__ PromptGroup(const PromptMemory<Shape>& memory, const SplitCall& split)
      : memory_(memory), split_(split), call_(split.call) {
    group_ = threadIdx.x / 128 - 1;
    thread_ = threadIdx.x % 128;
  }

  __device__ void run() {
    if (group_ == 1) pass_turn();  // the first is the other's
    int n = 0;
    for (int passages = 0;; ++passages) {
      wait_for(memory_.queries_there(passages), PromptMemory<Shape>::parity(passages, Shape::query_stages));
      const Brief& brief = memory_.brief(passages);
      if (brief.any == 0) return;
      look(memory_.sights(passages));
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
    const int first_quantum = brief.quantum;
    const int end_quantum = brief.end_quantum;
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
      release(memory_.keys_done(n));
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
      release(memory_.keys_done(n));
      soften(scores, rescale, quantum * block);
      wait_for_products<0>();
      release(memory_.values_done(n - 1));
#pragma unroll
      for (auto& part : sums_) {
#pragma unroll
        for (int i = 0; i < columns / 2; ++i) part[i] *= rescale[i / 2 % 2];
      }
      pack_weights(weights, scores);
    }
    release(memory_.queries_done(passages));
    add_values(real_from - (end_quantum - 1) * block, real_to - (end_quantum - 1) * block, n, weights);
    wait_for_products<0>();
    release(memory_.values_done(n));
    return n + 1;
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
    wait_for(memory_.keys_there(n), PromptMemory<Shape>::parity(n, Shape::stages));
    const unsigned keys = memory_.keys(n);
    begin_products();
#pragma unroll
    for (int step = 0; step < dims / 16; ++step) {
      const int panel = step / 4;
      const unsigned at = step % 4 * 32;
      warpgroup_product<T, block>(scores,
                                  describe(queries + panel * Shape::query_panel_bytes + group_ * (64 * 128) + at, 16),
                                  describe(keys + panel * Shape::panel_bytes + at, 16), step > 0);
    }
    end_products();
  }

  /// Starts sums += weights * values, of which those in rows [real_from, real_to) exist.
  __device__ __forceinline__ void add_values(int real_from, int real_to, int n,
                                             const unsigned (&weights)[block / 16][4]) {
    wait_for(memory_.values_there(n), PromptMemory<Shape>::parity(n, Shape::stages));
    const unsigned values = memory_.values(n);
    if (real_from > 0 || real_to < block) clear_values(values, real_from, real_to);
    begin_products();
#pragma unroll
    for (int step = 0; step < block / 16; ++step) {
#pragma unroll
      for (int part = 0; part < parts; ++part) {
        const unsigned from = values + part * (columns / panel_dims) * Shape::panel_bytes + step * (16 * 128);
        warpgroup_weigh<T, columns>(sums_[part], weights[step], describe(from, Shape::panel_bytes), 1);
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
    const Sight& sight = call_.sight;
    float factor = sight.scale * log2_e;
    if (sight.softcap > 0.0F) {
#pragma unroll
      for (float& score : scores) {
        score = sight.softcap * log2_e * fast_tanh(score * (sight.scale / sight.softcap));
      }
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
    float base[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float best = maximum_[half];
#pragma unroll
      for (int i = 0; i < block / 8; ++i) {
        best = fmaxf(best, fmaxf(scores[4 * i + 2 * half], scores[4 * i + 2 * half + 1]));
      }
      best = fmaxf(best, __shfl_xor_sync(all_lanes, best, 1));
      best = fmaxf(best, __shfl_xor_sync(all_lanes, best, 2));
      base[half] = best == -INFINITY ? 0.0F : best * factor;
      rescale[half] = power_of_two(maximum_[half] * factor - base[half]);
      maximum_[half] = best;
      total_[half] *= rescale[half];
    }
#pragma unroll
    for (int i = 0; i < block / 2; ++i) {
      scores[i] = power_of_two(scores[i] * factor - base[i / 2 % 2]);
      total_[i / 2 % 2] += scores[i];
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
    return call_.sight.softcap > 0.0F ? maximum_[half] : maximum_[half] * (call_.sight.scale * 1.442695041F);
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
      T* const to = static_cast<T*>(call_.out) +
                    row_begin(call_, brief.first_token, brief.head, number, call_.out_stride) + thread_ % 4 * 2;
      const float factor = total_[half] > 0.0F ? 1.0F / total_[half] : 0.0F;
#pragma unroll
      for (int i = 0; i < dims / 8; ++i) {
        const float* two = sums_[i / (columns / 8)] + i % (columns / 8) * 4 + 2 * half;
        *reinterpret_cast<unsigned*>(to + i * 8) = pack<T>(two[0] * factor, two[1] * factor);
      }
    }
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
  PromptShare share;
  share.quantum = Shape::block;
  share.short_rows = split.short_rows;
  Passage passage;
  if (!begin_share<Shape::threads>(share, passage, split.call)) return;
  const int warp = threadIdx.x / 32;
  if (warp < 4) {
    give_registers<40>();
    if (warp == 0) {
      bring_pages<T, Shape>(memory, split.call, share, passage);
    } else {
      bring_queries<T, Shape>(memory, split.call, share, passage, threadIdx.x - 32);
    }
  } else {
    take_registers<232>();
    PromptGroup<T, Shape>(memory, split).run();
  }
#endif
}

template <typename T, int dims>
void launch_prompts(Queue queue, const SplitCall& split) {
  using Shape = PromptShape<dims>;
  static const bool allowed = allow_shared(attend_prompts<T, Shape>, Shape::shared_bytes);
  static_cast<void>(allowed);
  launch(queue, attend_prompts<T, Shape>, static_cast<unsigned>(native(queue).multiprocessors), Shape::threads,
         Shape::shared_bytes, split);
}

template <typename T>
void launch_prompts_as(Queue queue, const SplitCall& split) {
  switch (split.call.pages.head_dim) {
    case 64: return launch_prompts<T, 64>(queue, split);
    case 128: return launch_prompts<T, 128>(queue, split);
    default: return launch_prompts<T, 256>(queue, split);
  }
}
#endif

}  // namespace quern::cuda
