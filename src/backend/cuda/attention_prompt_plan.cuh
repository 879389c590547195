// How the blocks of a grid share long prompts. A lane (segment, kv head, tile of 128 query rows) sees more keys the
// later its tile is, so lanes have a cost that grows linearly with the tile, up to the window; all lanes of a step in
// one row are cut into as many shares of equal cost as there are blocks. Costs have closed sums: nothing is listed. A
// lane costs as much as its keys and some more, as beginning and ending one takes time: blocks that have the short
// lanes at the front of a prompt have many.
#pragma once

#include "backend/cuda/attention_shares.cuh"
#include "backend/cuda/attention_tile.cuh"

namespace quern::cuda {

inline constexpr int prompt_rows = 128;   // query rows of a tile
inline constexpr int min_cut_quanta = 3;  // of a share; lanes are not cut into less

#ifdef __CUDACC__
/// The lanes of a segment. Tile i costs base + (i + 1) * slope; tiles from `level` on cost `cap`.
struct Prompt {
  int begin = 0;  // first query token
  int rows = 0;   // query rows of a kv head: (token, head of the group)
  int last = -1;  // position of the last token
  int tiles = 0;
  int base = 0;
  int slope = 0;
  int cap = 0;
  int level = 0;

  /// Of tiles [0, count) of one kv head.
  __device__ __forceinline__ int64_t cost(int count) const {
    const int64_t rising = min(count, level);
    return rising * base + slope * (rising * (rising + 1) / 2) + int64_t{count - min(count, level)} * cap;
  }
  __device__ __forceinline__ int tile_cost(int tile) const { return tile < level ? base + (tile + 1) * slope : cap; }
};

/// Segments of at most `short_rows` query rows are not prompts. A lane costs as much as `lane_keys` keys more.
__device__ __forceinline__ Prompt prompt_of(const AttentionCall& call, int segment, int short_rows, int lane_keys) {
  Prompt prompt;
  prompt.begin = call.spans.starts[segment];
  const int end = call.spans.starts[segment + 1];
  const int rows = (end - prompt.begin) * call.group;
  if (rows <= short_rows) return prompt;
  prompt.rows = rows;
  prompt.tiles = (rows + prompt_rows - 1) / prompt_rows;
  prompt.last = last_position(call.spans, prompt.begin, end);
  const int tile_tokens = (prompt_rows + call.group - 1) / call.group;
  const int window = call.sight.window > 0 ? call.sight.window : 1 << 28;
  if (call.sight.causal) {
    prompt.base = max(0, call.spans.positions[prompt.begin]) + lane_keys;
    prompt.slope = tile_tokens;
    prompt.cap = window + tile_tokens + lane_keys;
    prompt.level = max(0, prompt.cap - prompt.base) / tile_tokens;
  } else {
    prompt.cap = max(1, min(prompt.last + 1, 2 * window + tile_tokens)) + lane_keys;
  }
  return prompt;
}

/// What a block does in a row: some quanta of the keys of a tile.
struct Passage {
  Prompt prompt;
  int64_t lane_at = 0;  // cost of all lanes before this one
  int lane_cost = 0;
  int segment = 0;
  int head = 0;
  int tile = 0;
  bool begins = false;  // the lane begins here, and ends here
  bool ends = false;
  int first = 0;  // keys that some row of the tile sees, and those of all rows
  int end = 0;
  int quantum = 0;  // the quanta to do
  int end_quantum = 0;

  __device__ __forceinline__ int first_row() const { return tile * prompt_rows; }
  __device__ __forceinline__ bool whole() const { return begins && ends; }
};

struct PromptShare {
  EvenShares shares;  // of the cost of all lanes
  int64_t begin = 0;
  int64_t end = 0;
  int quantum = 0;  // keys
  int short_rows = 0;
  int lane_keys = 0;
  bool cuts = true;  // else a lane is all of the block's in whose share it begins

  /// Takes the next passage of this share, if there is one.
  __device__ bool advance(Passage& passage, const AttentionCall& call) const {
    passage.lane_at += passage.lane_cost;
    if (passage.lane_at >= end) return false;
    if (++passage.tile == passage.prompt.tiles) {
      passage.tile = 0;
      if (++passage.head == call.pages.kv_heads) {
        passage.head = 0;
        do passage.prompt = prompt_of(call, ++passage.segment, short_rows, lane_keys);
        while (passage.prompt.tiles == 0);
      }
    }
    enter(passage, call);
    return true;
  }

  /// The quanta of this share in the passage's lane.
  __device__ void enter(Passage& passage, const AttentionCall& call) const {
    const Prompt& prompt = passage.prompt;
    passage.lane_cost = prompt.tile_cost(passage.tile);
    const int first_token = prompt.begin + passage.first_row() / call.group;
    const int last_row = min(prompt.rows, passage.first_row() + prompt_rows) - 1;
    const int last = last_position(call.spans, first_token, prompt.begin + last_row / call.group + 1);
    passage.first = call.sight.first_key(max(0, call.spans.positions[first_token]));
    passage.end = call.sight.end_key(last, prompt.last);
    const int from = static_cast<int>(max(begin - passage.lane_at, int64_t{0}));
    const int to = static_cast<int>(min(end - passage.lane_at, int64_t{passage.lane_cost}));
    passage.begins = from == 0;
    passage.ends = !cuts || to == passage.lane_cost;
    const int quanta_at = passage.first / quantum;
    const int quanta = max(0, (passage.end + quantum - 1) / quantum - quanta_at);
    const float each = static_cast<float>(quanta) / static_cast<float>(passage.lane_cost);
    const auto quanta_before = [&](int cost) { return min(quanta, static_cast<int>(static_cast<float>(cost) * each)); };
    passage.quantum = quanta_at + quanta_before(from);
    passage.end_quantum = quanta_at + (passage.ends ? quanta : quanta_before(to));
  }
};

/// All `threads`: finds this block's share and its first passage; false if there is none.
template <int threads>
__device__ bool begin_share(PromptShare& share, Passage& passage, const AttentionCall& call) {
  constexpr int warps = threads / 32;
  __shared__ int64_t warp_costs[warps];
  __shared__ int64_t found_at;
  __shared__ int found_segment;
  const int each = (call.spans.segments + threads - 1) / threads;
  const int first = threadIdx.x * each;
  const int end = min(call.spans.segments, first + each);
  const auto cost_of = [&](int segment) {
    const Prompt prompt = prompt_of(call, segment, share.short_rows, share.lane_keys);
    return prompt.cost(prompt.tiles) * call.pages.kv_heads;
  };
  int64_t mine = 0;
  for (int segment = first; segment < end; ++segment) mine += cost_of(segment);
  int64_t until = mine;  // this thread's and the threads' before
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int64_t before = __shfl_up_sync(all_lanes, until, step);
    if (threadIdx.x % 32 >= step) until += before;
  }
  if (threadIdx.x % 32 == 31) warp_costs[threadIdx.x / 32] = until;
  __syncthreads();
  int64_t total = 0;
  for (int warp = 0; warp < warps; ++warp) {
    if (warp < threadIdx.x / 32) until += warp_costs[warp];
    total += warp_costs[warp];
  }
  if (blockIdx.x >= total) return false;
  share.shares = EvenShares(total, static_cast<int>(min(int64_t{gridDim.x}, total)));
  share.begin = share.shares.begin(blockIdx.x);
  share.end = share.shares.begin(blockIdx.x + 1);
  share.cuts = share.cuts && share.shares.quotient >= min_cut_quanta * share.quantum + share.lane_keys;
  int64_t at = until - mine;
  if (share.begin >= at && share.begin < until) {
    int segment = first;
    for (int64_t here; at + (here = cost_of(segment)) <= share.begin; ++segment) at += here;
    found_at = at;
    found_segment = segment;
  }
  __syncthreads();
  passage.segment = found_segment;
  passage.prompt = prompt_of(call, found_segment, share.short_rows, share.lane_keys);
  const int64_t head_cost = passage.prompt.cost(passage.prompt.tiles);
  passage.head = static_cast<int>((share.begin - found_at) / head_cost);
  const int64_t head_at = found_at + passage.head * head_cost;
  int low = 0;
  int high = passage.prompt.tiles;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (head_at + passage.prompt.cost(middle) <= share.begin ? low : high) = middle;
  }
  passage.tile = low;
  passage.lane_at = head_at + passage.prompt.cost(low);
  share.enter(passage, call);
  return share.cuts || passage.begins || share.advance(passage, call);
}
#endif

}  // namespace quern::cuda
