// The warps that bring pages and queries of prompts into shared memory.
#pragma once

#include "backend/cuda/attention_prompt_memory.cuh"
#include "backend/cuda/attention_split.h"
#include "backend/cuda/attention_tile_f8.cuh"

namespace quern::cuda {

#ifdef __CUDACC__
/// Whether the call's prompts read half floats that were made before it.
__device__ __forceinline__ bool are_widened(const SplitCall& split) {
  return split.widened != nullptr && split.widened[split.call.spans.segments] != 0;
}

/// Where a segment's pages are listed; of widened ones, where the first of them is.
template <typename Shape>
__device__ __forceinline__ const int* table_of(const AttentionCall& call, int segment) {
  return call.pages.table + (Shape::widened ? segment : call.spans.rows[segment] * call.pages.table_stride);
}

/// Pages of the units of a quantum, one in each lane; -1 for units that no row sees.
template <typename Shape>
__device__ __forceinline__ int page_of(const Pages& pages, const int* table, const Passage& passage, int quantum) {
  const int unit = threadIdx.x % 32;
  const int key = quantum * Shape::block + unit * unit_keys;
  const bool seen = unit < Shape::block / unit_keys && key + unit_keys > passage.first && key <= passage.prompt.last &&
                    quantum < passage.end_quantum;
  if (!seen) return -1;
  return Shape::widened ? *table + key / pages.page_tokens : table[key / pages.page_tokens];
}

/// One warp: brings the keys, or the values, of a share into shared memory.
template <typename T, typename Shape>
__device__ void bring_pages(const PromptMemory<Shape>& memory, const AttentionCall& call, const PromptShare& share,
                            Passage passage, Side side) {
  constexpr unsigned part_bytes = unit_keys * 128;  // of a unit in one panel
  constexpr int units = Shape::block / unit_keys;
  const Pages& pages = call.pages;
  const int64_t after = side == Side::keys ? 0 : pages.values_after();
  const int lane = threadIdx.x % 32;
  int n = 0;
  do {
    const int* table = table_of<Shape>(call, passage.segment);
    int page = page_of<Shape>(pages, table, passage, passage.quantum);
    for (int quantum = passage.quantum; quantum < passage.end_quantum; ++quantum, ++n) {
      const int next_page = page_of<Shape>(pages, table, passage, quantum + 1);
      const unsigned there = memory.there(side, n);
      const unsigned bytes = __popc(__ballot_sync(all_lanes, page >= 0)) * (Shape::panels * part_bytes);
      wait_for(memory.done(side, n), PromptMemory<Shape>::parity(n, Shape::stages) ^ 1);
      if (lane == 0) arrive_expecting(there, bytes);
      __syncwarp();
      const unsigned to = memory.tile(side, n);
      const T* mine =
          pages.unit<const T>(max(page, 0), passage.head, quantum * Shape::block + lane * unit_keys) + after;
#pragma unroll
      for (int unit = 0; unit < units; ++unit) {
        const T* from = of_lane(mine, unit);
        if (__shfl_sync(all_lanes, page, unit) < 0 || !elected()) continue;
#pragma unroll
        for (int panel = 0; panel < Shape::panels; ++panel) {
          copy_bytes(to + panel * Shape::panel_bytes + unit * part_bytes, from + panel * panel_dims * unit_keys,
                     part_bytes, there);
        }
      }
      page = next_page;
    }
  } while (share.advance(passage, call));
}

/// A warp's parts of a passage's keys or values of 8-bit floats, on their way into its ring: every second one.
template <typename Shape>
class Parts {
 public:
  __device__ Parts(const PromptMemory<Shape>& memory, const Pages& pages, int warp)
      : memory_(memory), pages_(pages), warp_(warp) {}

  __device__ Side side() const { return warp_ % 2 == 0 ? Side::keys : Side::values; }

  __device__ void begin(const AttentionCall& call, const Passage& passage) {
    table_ = table_of<Shape>(call, passage.segment);
    quantum_ = passage.quantum;
    part_ = 0;
    next_page_ = page_of<Shape>(pages_, table_, passage, quantum_);
    for (int i = 0; i < Shape::part_stages; ++i) send(passage);
  }

  /// Sends for the next part, if there is one.
  __device__ void send(const Passage& passage) {
    if (quantum_ >= passage.end_quantum) return;
    constexpr int units = Shape::part_keys / unit_keys;
    constexpr unsigned unit_bytes = unit_keys * Shape::dims;
    const int lane = threadIdx.x % 32;
    if (part_ == 0) {
      page_ = next_page_;
      next_page_ = page_of<Shape>(pages_, table_, passage, quantum_ + 1);
    }
    const E4m3* mine =
        pages_.unit<const E4m3>(max(page_, 0), passage.head, quantum_ * Shape::block + lane * unit_keys) +
        (side() == Side::keys ? 0 : pages_.values_after());
    const bool ours = page_ >= 0 && lane / units == part_ * Shape::sharers + warp_ / 2;
    const unsigned there = memory_.part_there(warp_, sent_);
    const unsigned bytes = __popc(__ballot_sync(all_lanes, ours)) * unit_bytes;
    if (lane == 0) arrive_expecting(there, bytes);
    __syncwarp();
    if (ours) copy_bytes(memory_.part(warp_, sent_) + lane % units * unit_bytes, mine, unit_bytes, there);
    ++sent_;
    if (++part_ < own_parts) return;
    part_ = 0;
    ++quantum_;
  }

  /// Makes half floats of all its parts of a tile.
  __device__ void widen(unsigned tile, const Passage& passage) {
    for (int part = 0; part < own_parts; ++part) {
      widen_next(tile + (part * Shape::sharers + warp_ / 2) * (Shape::part_keys * 128));
      send(passage);
    }
  }

 private:
  static constexpr int own_parts = Shape::tile_parts / Shape::sharers;

  /// `to`: its place in the first panel
  __device__ void widen_next(unsigned to) {
    constexpr int row_pieces = Shape::dims / 16;
    constexpr int batch = 4;  // pieces that a thread loads at once
    const int lane = threadIdx.x % 32;
    wait_for(memory_.part_there(warp_, taken_), PromptMemory<Shape>::parity(taken_, Shape::part_stages));
    const unsigned from = memory_.part(warp_, taken_++) + 16 * lane;
    const int piece = lane % row_pieces;
#pragma unroll
    for (int first = 0; first < Shape::part_bytes / 16; first += 32 * batch) {
      unsigned values[batch][4];
#pragma unroll
      for (int i = 0; i < batch; ++i) load_piece(values[i], from + 16 * (first + 32 * i));
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        const int row = (first + 32 * i) / row_pieces + lane / row_pieces;
        store_widened(to + piece / 4 * Shape::panel_bytes, row, piece, values[i]);
      }
    }
    __syncwarp();
  }

  const PromptMemory<Shape>& memory_;
  const Pages& pages_;
  int warp_;  // of those that widen: keys, values, keys, values
  const int* table_ = nullptr;
  int quantum_ = 0;  // of the next part to send for
  int part_ = 0;
  int page_ = -1;  // of the lane's unit of that quantum, and of the next quantum
  int next_page_ = -1;
  int sent_ = 0;
  int taken_ = 0;
};

/// The same of 8-bit floats, which warps make into half floats.
template <typename Shape>
__device__ void bring_narrow_pages(const PromptMemory<Shape>& memory, const AttentionCall& call,
                                   const PromptShare& share, Passage passage, int warp) {
  Parts<Shape> parts(memory, call.pages, warp);
  const Side side = parts.side();
  int n = 0;
  do {
    parts.begin(call, passage);
    for (int quantum = passage.quantum; quantum < passage.end_quantum; ++quantum, ++n) {
      wait_for(memory.done(side, n), PromptMemory<Shape>::parity(n, Shape::stages) ^ 1);
      parts.widen(memory.tile(side, n), passage);
      show_stores();
      __syncwarp();
      if (threadIdx.x % 32 == 0) arrive(memory.there(side, n));
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

template <typename Shape>
__device__ __forceinline__ unsigned query_offset(int row, int chunk) {
  return chunk / 8 * Shape::query_panel_bytes + row * 128 + (chunk % 8 ^ row % 8) * 16;
}

/// Eight floats of the type Bf16 in shared memory become Half.
__device__ __forceinline__ void halve_chunk(unsigned at) {
  unsigned words[4];
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(at)
               : "memory");
#pragma unroll
  for (unsigned& word : words) word = pack<Half>(__uint_as_float(word << 16), __uint_as_float(word & 0xFFFF0000U));
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(words[0]), "r"(words[1]), "r"(words[2]),
               "r"(words[3])
               : "memory");
}

/// Some warps: bring the query rows of all passages of a share into shared memory, and what the rows see.
template <typename Shape>
__device__ void bring_queries(const PromptMemory<Shape>& memory, const SplitCall& split, const PromptShare& share,
                              Passage passage, int thread) {
  const AttentionCall& call = split.call;
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
      copy_chunk(memory.queries(n) + query_offset<Shape>(row, chunk),
                 static_cast<const uint16_t*>(call.q) + max(begin, int64_t{0}) + chunk * chunk_dims, begin >= 0);
    }
    end_copies();
    more = share.advance(passage, call);
    wait_for_copies<0>();
    if (Shape::scaled && !split.direct_queries) {
#pragma unroll 4
      for (int i = thread; i < prompt_rows * row_chunks; i += Shape::loaders) {
        halve_chunk(memory.queries(n) + query_offset<Shape>(i / row_chunks, i % row_chunks));
      }
    }
    show_stores();
    sync_threads(barrier, Shape::loaders);
    arrive(memory.queries_there(n));
  }
  wait_for(memory.queries_done(n), PromptMemory<Shape>::parity(n, Shape::query_stages) ^ 1);
  if (thread == 0) memory.brief(n).any = 0;
  arrive(memory.queries_there(n));
}
#endif

}  // namespace quern::cuda
