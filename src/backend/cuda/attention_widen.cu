#include "backend/cuda/attention_widen.h"

#include <algorithm>

#include "backend/cuda/attention_prompt_plan.cuh"
#include "backend/cuda/attention_tile_f8.cuh"

namespace quern::cuda {
namespace {

constexpr int threads = 256;
constexpr int most_segments = 2048;
constexpr int64_t most_bytes = int64_t{128} << 20;
constexpr int page_parts = 4;  // that blocks take one by one
// Where it is faster (measured): each key is read for so many tiles of query rows, and all heads' tiles have so many
// keys.
constexpr int64_t least_tiles = 8;
constexpr int64_t least_cost = 250'000;

/// Of one layer.
int64_t widened_page_bytes(const Pages& pages) { return int64_t{4} * pages.kv_heads * pages.head_elements; }

int64_t lists_bytes(int segments) { return (int64_t{4} * (segments + 1) + 127) / 128 * 128; }

/// Which pages of a segment are widened.
struct Seen {
  int first = 0;
  int count = 0;
  int64_t cost = 0;  // keys of all tiles of a head
};

__device__ __forceinline__ Seen seen_of(const SplitCall& split, int segment) {
  const AttentionCall& call = split.call;
  const Prompt prompt = prompt_of(call, segment, split.short_rows, 0);
  Seen seen;
  if (prompt.tiles == 0 || prompt.last < 0) return seen;
  seen.first = call.sight.first_key(max(0, call.spans.positions[prompt.begin])) / call.pages.page_tokens;
  seen.count = prompt.last / call.pages.page_tokens + 1 - seen.first;
  seen.cost = prompt.cost(prompt.tiles);
  return seen;
}

struct Totals {
  int64_t cost;
  int pages;
};

/// All threads: writes to ends[i] the pages of segments 0 to i.
__device__ Totals list_pages(const SplitCall& split, int* ends) {
  __shared__ Totals warps[threads / 32];
  const int segments = split.call.spans.segments;
  const int each = (segments + threads - 1) / threads;
  const int first = static_cast<int>(threadIdx.x) * each;
  const int end = min(segments, first + each);
  Totals mine{};
  for (int segment = first; segment < end; ++segment) {
    const Seen seen = seen_of(split, segment);
    mine.pages += seen.count;
    mine.cost += seen.cost;
    ends[segment] = mine.pages;
  }
  Totals until = mine;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int pages = __shfl_up_sync(all_lanes, until.pages, step);
    const int64_t cost = __shfl_up_sync(all_lanes, until.cost, step);
    if (threadIdx.x % 32 < step) continue;
    until.pages += pages;
    until.cost += cost;
  }
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (threadIdx.x % 32 == 31) warps[warp] = until;
  __syncthreads();
  int before = until.pages - mine.pages;
  Totals all{};
#pragma unroll
  for (int i = 0; i < threads / 32; ++i) {
    if (i < warp) before += warps[i].pages;
    all.pages += warps[i].pages;
    all.cost += warps[i].cost;
  }
  for (int segment = first; segment < end; ++segment) ends[segment] += before;
  __syncthreads();
  return all;
}

/// All threads: a part of a page of the layer.
__device__ __forceinline__ void widen_part(const Pages& pages, const std::byte* from, uint16_t* to, int part) {
  constexpr int at_once = 2;  // loads of a thread that are on their way together
  const int dim_bits = 31 - __clz(pages.head_dim);
  const int pieces = 2 * pages.kv_heads * pages.head_elements / 16;
  const int end = pieces * (part + 1) / page_parts;
  for (int first = pieces * part / page_parts + static_cast<int>(threadIdx.x); first < end;
       first += at_once * threads) {
    uint4 loaded[at_once];
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      const int piece = min(first + j * threads, end - 1);
      loaded[j] = __ldcg(reinterpret_cast<const uint4*>(from) + piece);
    }
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      if (first + j * threads >= end) break;
      const int element = 16 * (first + j * threads);
      const int row = element >> dim_bits;  // of all units
      const int dim = element & (pages.head_dim - 1);
      uint16_t* const unit = to + ((row / unit_keys * unit_keys) << dim_bits);
      const auto store = [unit, &pages](int row_in_unit, int at, uint32_t low, uint32_t high) {
        __stcg(reinterpret_cast<uint4*>(unit + panel_offset(pages.head_dim, row_in_unit, at)),
               make_uint4(halves_of_e4m3(low), halves_of_e4m3(low >> 16), halves_of_e4m3(high),
                          halves_of_e4m3(high >> 16)));  // the plain assignment would be four stores
      };
      store(row % unit_keys, dim, loaded[j].x, loaded[j].y);
      store(row % unit_keys, dim + chunk_dims, loaded[j].z, loaded[j].w);
    }
  }
}

__global__ void __launch_bounds__(threads)
    widen(const __grid_constant__ SplitCall split, int* bases, uint16_t* widened, int capacity) {
  __shared__ int ends[most_segments];
  allow_next();
  wait_for_previous();
  const AttentionCall& call = split.call;
  const int segments = call.spans.segments;
  const Totals all = list_pages(split, ends);
  const bool done = all.pages > 0 && all.pages <= capacity && all.cost * call.pages.kv_heads >= least_cost &&
                    all.cost >= least_tiles * all.pages * call.pages.page_tokens;
  if (blockIdx.x == 0) {
    for (int segment = static_cast<int>(threadIdx.x); segment < segments; segment += threads) {
      bases[segment] = (segment == 0 ? 0 : ends[segment - 1]) - seen_of(split, segment).first;
    }
    if (threadIdx.x == 0) bases[segments] = done ? 1 : 0;
  }
  if (!done) return;
  const int64_t page_elements = int64_t{2} * call.pages.kv_heads * call.pages.head_elements;
  const int parts = all.pages * page_parts;
  for (int number = static_cast<int>(blockIdx.x); number < parts; number += static_cast<int>(gridDim.x)) {
    const int page = number / page_parts;
    int low = 0;  // the first segment whose pages end after this one
    for (int high = segments - 1; low < high;) {
      const int middle = (low + high) / 2;
      if (ends[middle] > page)
        high = middle;
      else
        low = middle + 1;
    }
    const int in_row = seen_of(split, low).first + page - (low == 0 ? 0 : ends[low - 1]);
    const int from = call.pages.table[call.spans.rows[low] * call.pages.table_stride + in_row];
    if (from < 0) continue;
    widen_part(call.pages, call.pages.layer + from * call.pages.page_bytes, widened + page * page_elements,
               number % page_parts);
  }
}

}  // namespace

int widened_capacity(const PagedKv& kv, const Segments& segments) {
  if (segments.rows.dims[0] > most_segments) return 0;
  const int64_t all = int64_t{kv.table.dims[0]} * kv.table.dims[1];
  return static_cast<int>(std::min(all, most_bytes / widened_page_bytes(Pages(kv))));
}

int64_t widened_bytes(const PagedKv& kv, const Segments& segments) {
  return lists_bytes(segments.rows.dims[0]) + widened_capacity(kv, segments) * widened_page_bytes(Pages(kv));
}

SplitCall on_widened(const SplitCall& split) {
  SplitCall result = split;
  Pages& pages = result.call.pages;
  pages.layer = reinterpret_cast<std::byte*>(split.widened) + lists_bytes(split.call.spans.segments);
  pages.page_bytes = widened_page_bytes(pages);
  pages.table = split.widened;
  pages.table_stride = 0;
  pages.panels = true;
  return result;
}

void widen_prompts(Queue queue, const SplitCall& split) {
  const SplitCall to = on_widened(split);
  launch(queue, widen, static_cast<unsigned>(8 * native(queue).multiprocessors), threads, 0, split, split.widened,
         reinterpret_cast<uint16_t*>(to.call.pages.layer), split.widened_capacity);
}

}  // namespace quern::cuda
