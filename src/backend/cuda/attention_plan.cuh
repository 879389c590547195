// How the blocks of a grid share the work of attention. The keys of every lane (segment, kv head, tile of query rows)
// are cut into quanta at fixed positions; all quanta of a step in one row are cut into as many equal shares as there
// are blocks. What a step holds is read from the device, so a launch depends on shapes only. A lane that is cut leaves
// partial sums, which the last of its blocks merges in ascending order.
#pragma once

#include "backend/cuda/attention_shares.cuh"
#include "backend/cuda/attention_tile.cuh"

namespace quern::cuda {

inline constexpr int plan_threads = 128;
inline constexpr int plan_warps = plan_threads / 32;

#ifdef __CUDACC__
/// The lanes of a segment.
struct Span {
  int begin = 0;  // first query token
  int rows = 0;   // query rows of a kv head: (token, head of the group)
  int last = -1;  // position of the last token
  int tiles = 0;
  int first = 0;   // quantum of the first key that any row sees
  int quanta = 0;  // of every lane, at least 1 so that padding becomes zeros too
};

/// Segments of more than `short_rows` query rows are not done here.
__device__ __forceinline__ Span span_of(const AttentionCall& call, int segment, int quantum, int short_rows) {
  Span span;
  span.begin = call.spans.starts[segment];
  const int end = call.spans.starts[segment + 1];
  const int rows = (end - span.begin) * call.group;
  if (rows == 0 || rows > short_rows) return span;
  span.rows = rows;
  span.tiles = (span.rows + tile_rows - 1) / tile_rows;
  span.last = last_position(call.spans, span.begin, end);
  span.first = call.sight.first_key(call.spans.positions[span.begin]) / quantum;
  span.quanta = max(1, (span.last + quantum) / quantum - span.first);
  return span;
}

/// What one block does in a row: some quanta of a lane.
struct Piece {
  Span span;
  int64_t lane_at = 0;  // number of the lane's first quantum among all
  int segment = 0;
  int lane = 0;         // of the segment: kv head, then tile
  int share_begin = 0;  // quanta of the lane that are this block's
  int share_end = 0;
  int begin = 0;  // and of these the ones that are done now
  int end = 0;

  __device__ __forceinline__ int head() const { return lane / span.tiles; }
  __device__ __forceinline__ int first_row() const { return lane % span.tiles * tile_rows; }
  __device__ __forceinline__ int rows() const { return min(tile_rows, span.rows - first_row()); }
  __device__ __forceinline__ bool whole() const { return share_begin == 0 && share_end == span.quanta; }
};

/// The share of one block. `step`: how many quanta are done at once, at most.
struct Share {
  EvenShares shares;  // of the quanta of all lanes; of at least one
  int64_t begin = 0;
  int64_t end = 0;
  int step = 0;
  int quantum = 0;  // keys
  int short_rows = 0;
  bool cuts = true;  // else a lane is all of the block's in whose share it begins

  /// Takes the next piece of this share, if there is one.
  __device__ bool advance(Piece& piece, const AttentionCall& call) const {
    if (piece.end < piece.share_end) {
      piece.begin = piece.end;
      piece.end = min(piece.share_end, piece.begin + step);
      return true;
    }
    piece.lane_at += piece.span.quanta;
    if (piece.lane_at >= end) return false;
    if (++piece.lane == piece.span.tiles * call.pages.kv_heads) {
      piece.lane = 0;
      do piece.span = span_of(call, ++piece.segment, quantum, short_rows);
      while (piece.span.quanta == 0);
    }
    enter(piece, 0);
    return true;
  }
  /// The piece begins at quantum `from` of its lane.
  __device__ __forceinline__ void enter(Piece& piece, int from) const {
    const int64_t left = end - piece.lane_at;
    piece.share_begin = from;
    piece.share_end = cuts && left < piece.span.quanta ? static_cast<int>(left) : piece.span.quanta;
    piece.begin = from;
    piece.end = min(piece.share_end, from + step);
  }
};

/// All threads: finds this block's share and its first piece; false if there is none. `cut_below`: lanes are cut only
/// if there are no more quanta than this.
__device__ inline bool begin_share(Share& share, Piece& piece, const AttentionCall& call, int64_t cut_below) {
  __shared__ int64_t warp_quanta[plan_warps];
  __shared__ int64_t found_at;
  __shared__ int found_segment;
  const int each = (call.spans.segments + plan_threads - 1) / plan_threads;
  const int first = threadIdx.x * each;
  const int end = min(call.spans.segments, first + each);
  const auto quanta_of = [&](int segment) {
    const Span span = span_of(call, segment, share.quantum, share.short_rows);
    return int64_t{span.quanta} * span.tiles * call.pages.kv_heads;
  };
  int64_t mine = 0;
  for (int segment = first; segment < end; ++segment) mine += quanta_of(segment);
  int64_t until = mine;  // this thread's quanta and those of the threads before
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int64_t before = __shfl_up_sync(all_lanes, until, step);
    if (threadIdx.x % 32 >= step) until += before;
  }
  if (threadIdx.x % 32 == 31) warp_quanta[threadIdx.x / 32] = until;
  __syncthreads();
  int64_t total = 0;
  for (int warp = 0; warp < plan_warps; ++warp) {
    if (warp < threadIdx.x / 32) until += warp_quanta[warp];
    total += warp_quanta[warp];
  }
  if (blockIdx.x >= total) return false;
  share.shares = EvenShares(total, static_cast<int>(min(int64_t{gridDim.x}, total)));
  share.begin = share.shares.begin(blockIdx.x);
  share.end = share.shares.begin(blockIdx.x + 1);
  share.cuts = total <= cut_below;
  int64_t at = until - mine;
  if (share.begin >= at && share.begin < until) {
    int segment = first;
    for (int64_t here; at + (here = quanta_of(segment)) <= share.begin; ++segment) at += here;
    found_at = at;
    found_segment = segment;
  }
  __syncthreads();
  piece.segment = found_segment;
  piece.span = span_of(call, piece.segment, share.quantum, share.short_rows);
  piece.lane = static_cast<int>(share.begin - found_at) / piece.span.quanta;
  piece.lane_at = found_at + int64_t{piece.lane} * piece.span.quanta;
  const int from = static_cast<int>(share.begin - piece.lane_at);
  share.enter(piece, from);
  if (share.cuts || from == 0) return true;
  piece.end = piece.share_end;
  return share.advance(piece, call);
}
#endif

}  // namespace quern::cuda
