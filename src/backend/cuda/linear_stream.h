// The product of a quantized weight with very few tokens: one block on each SM, whose warps multiply what a ring in
// shared memory brings. Where a block ends, one of the next product begins to fetch. Activations are made integers of
// 16 bits for each 32 columns.
#pragma once

#include "backend/cuda/linear_skinny.h"

namespace quern::cuda {

inline constexpr int stream_warps = 8;                          // of a block that multiply
inline constexpr int stream_threads = 32 * (stream_warps + 2);  // one warp more fetches, one writes results
inline constexpr int stream_tokens = 4;                         // the most of one launch
inline constexpr int most_stream_stages = 12;
inline constexpr int most_stream_cluster = 4;

/// What is subtracted from the levels of a format.
template <typename Format>
constexpr int stream_zero() {
  switch (Format::id) {
    case FormatId::q4_0: return 8;
    case FormatId::q5_0: return 16;
    case FormatId::q6_k: return 32;
    default: return 0;
  }
}

/// What a stage of the ring holds of a tile of 16 rows, a record for each warp or two, and of each token beside it.
template <typename Format>
struct StreamStage {
  using P = Packed<Format>;
  static constexpr int most_units = 2 * stream_warps;
  static constexpr int block_bytes = P::narrow ? 16 : 8;  // a scale and what it needs, see StreamBlock
  static constexpr int x_unit_bytes = 2 * record_columns + 4 * block_bytes;

  /// Records, behind them their headers.
  static constexpr int bytes(int units) { return units * P::record_bytes + units / 2 * panel_height * P::header; }
};

/// What a launch depends on beside the job, in which share, x_pitch and tiles_end are set.
struct StreamLaunch {
  int blocks = 0;
  int cluster = 1;
  int stages = 0;
  int stage_units = 0;
  int stage_bytes = 0;
  int sums_at = 0;
  int x_at = 0;
  int ring_at = 0;
  int shared_bytes = 0;
};

/// One for each quantized format and type of activations.
template <typename Format, typename T>
void launch_stream(const Queue& queue, const SkinnyJob& job, const StreamLaunch& launch);

}  // namespace quern::cuda
