// The warps that bring pages and queries of prompts into shared memory.
#pragma once

#include "backend/cuda/attention_prompt_memory.cuh"
#include "backend/cuda/attention_split.h"
#include "backend/cuda/attention_tile_f8.cuh"

namespace quern::cuda {

#ifdef __CUDACC__
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

/// One warp: brings the same as 8-bit floats into the ring of parts: of every quantum first keys, then values.
template <typename Shape>
__device__ void bring_parts(const PromptMemory<Shape>& memory, const AttentionCall& call, const PromptShare& share,
                            Passage passage) {
  constexpr unsigned unit_bytes = unit_keys * Shape::dims;
  constexpr int part_units = Shape::part_keys / unit_keys;
  const Pages& pages = call.pages;
  const int lane = threadIdx.x % 32;
  int n = 0;
  do {
    const int* table = pages.table + call.spans.rows[passage.segment] * pages.table_stride;
    // A lane's unit of a quantum: its page, or -1 if no row sees it.
    const auto page_of = [&](int quantum) {
      const int key = quantum * Shape::block + lane * unit_keys;
      const bool seen = lane < Shape::block / unit_keys && key + unit_keys > passage.first &&
                        key <= passage.prompt.last && quantum < passage.end_quantum;
      return seen ? table[key / pages.page_tokens] : -1;
    };
    int quantum_page = page_of(passage.quantum);
    for (int quantum = passage.quantum; quantum < passage.end_quantum; ++quantum) {
      const int next_page = page_of(quantum + 1);
      for (int part = 0; part < 2 * Shape::tile_parts; ++part, ++n) {
        const int unit = part % Shape::tile_parts * part_units + lane;
        const int unit_page = __shfl_sync(all_lanes, quantum_page, unit % 32);
        const int page = lane < part_units ? unit_page : -1;
        const E4m3* from =
            pages.unit<const E4m3>(max(page, 0), passage.head, quantum * Shape::block + unit * unit_keys) +
            (part < Shape::tile_parts ? 0 : pages.values_after());
        const unsigned bytes = __popc(__ballot_sync(all_lanes, page >= 0)) * unit_bytes;
        wait_for(memory.part_done(n), PromptMemory<Shape>::parity(n, Shape::part_stages) ^ 1);
        if (lane == 0) arrive_expecting(memory.part_there(n), bytes);
        __syncwarp();
        if (page >= 0) copy_bytes(memory.part(n) + lane * unit_bytes, from, unit_bytes, memory.part_there(n));
      }
      quantum_page = next_page;
    }
  } while (share.advance(passage, call));
}

/// Some warps: make keys and values for the matrix instructions from the ring of parts.
template <typename Shape>
__device__ void widen_parts(const PromptMemory<Shape>& memory, const AttentionCall& call, const PromptShare& share,
                            Passage passage, int thread) {
  constexpr int threads = 32 * Shape::widening_warps;
  constexpr int row_pieces = Shape::dims / 16;
  int n = 0;
  int parts = 0;
  const auto widen_tile = [&](unsigned to) {
    for (int part = 0; part < Shape::tile_parts; ++part, ++parts) {
      wait_for(memory.part_there(parts), PromptMemory<Shape>::parity(parts, Shape::part_stages));
#pragma unroll 4
      for (int i = thread; i < Shape::part_bytes / 16; i += threads) {
        const int piece = i % row_pieces;
        const int row = part * Shape::part_keys + i / row_pieces;
        widen_piece(to + piece / 4 * Shape::panel_bytes, row, piece, memory.part(parts) + 16 * i);
      }
      __syncwarp();
      if (thread % 32 == 0) arrive(memory.part_done(parts));
    }
    show_stores();
    __syncwarp();
  };
  do {
    for (int quantum = passage.quantum; quantum < passage.end_quantum; ++quantum, ++n) {
      const unsigned free = PromptMemory<Shape>::parity(n, Shape::stages) ^ 1;
      wait_for(memory.keys_done(n), free);
      widen_tile(memory.keys(n));
      if (thread % 32 == 0) arrive(memory.keys_there(n));
      wait_for(memory.values_done(n), free);
      widen_tile(memory.values(n));
      if (thread % 32 == 0) arrive(memory.values_there(n));
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
    if (Shape::f8 && !split.direct_queries) {
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
