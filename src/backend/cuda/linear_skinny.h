// The product of a packed weight with few tokens, limited by how fast the weight can be read.
#pragma once

#include <cstdint>

#include "backend/cuda/launch.h"
#include "backend/cuda/packed.cuh"
#include "tensor/dtype.h"

namespace quern::cuda {

inline constexpr int skinny_warps = 8;
inline constexpr int skinny_tokens = 64;  // the most of one launch

/// Tokens are multiplied in tiles of eight; kernels exist for these numbers of tiles.
constexpr int token_tiles(int32_t tokens) { return tokens <= 8 ? 1 : tokens <= 16 ? 2 : tokens <= 32 ? 4 : 8; }

/// Columns of the unit that a warp reads at once, and how many of them it has under way.
template <typename Format>
constexpr int unit_columns = is_float<Format> ? 64 : record_columns;  // 128 bytes of a row of floats
template <typename Format>
constexpr int unit_bytes() {  // of shared memory
  if constexpr (in_rows<Format>)
    return 2048 + 64 * Format::scale_bytes;
  else
    return Packed<Format>::record_bytes + 64 * Packed<Format>::header;
}
/// Tiles of 16 rows of a warp: of many tokens two, so that x is read from shared memory half as often.
constexpr int row_tiles(int tiles) { return tiles == 1 ? 1 : 2; }
template <typename Format>
constexpr int units_ahead(int tiles) {
  return row_tiles(tiles) == 2 ? 2 : unit_bytes<Format>() > 1700 ? 3 : 4;
}

template <typename Format>
inline constexpr bool has_minimum =
    Format::id == FormatId::q4_1 || Format::id == FormatId::q4_k || Format::id == FormatId::q5_k;

inline constexpr int sums_pitch = 18;  // floats between tokens: at most two lanes of a store in one bank
/// Tiles take turns with the sums of few tokens, so that warps go on while others still write results.
constexpr int sums_buffers(int tiles) { return tiles == 1 ? 2 : 1; }
constexpr int sums_floats(int tiles) { return skinny_warps * 8 * tiles * sums_pitch; }
constexpr int sums_bytes(int tiles) { return sums_buffers(tiles) * sums_floats(tiles) * 4; }
/// Blocks that an SM can hold, and how many a launch usually has there: the next kernel's find room beside them.
constexpr int skinny_residents(int tiles) { return tiles == 1 ? 3 : tiles <= 4 ? 2 : 1; }
constexpr int skinny_blocks(int tiles) { return tiles <= 4 ? 2 : 1; }

/// y[token][first_row[p] + r] = sum over columns of part p's row r times x[token], times scale, plus bias.
struct SkinnyJob {
  const std::byte* data[3];
  int32_t rows[3];
  int32_t first_row[3];
  int32_t tiles_end[3];  // tiles of the parts up to this one
  int32_t parts;
  int32_t cols;
  int32_t tokens;
  int32_t units;        // of columns, see unit_columns
  int32_t headers_at;   // in a stage of a ring
  int32_t row_groups;   // of warps in a block, which share the columns of row_tiles() * 16 rows each
  int32_t share;        // units of columns of each block of a cluster
  int32_t steps;        // of each warp in a tile: its units
  int32_t chunk_steps;  // steps whose x is in shared memory at once
  int32_t x_pitch;      // bytes between tokens there
  int32_t x_buffers;    // 1 when all of x is there
  bool x_aligned;       // to 16 bytes, every token
  bool accumulate;
  const void* x;
  void* y;
  const float* scale;  // or null
  const float* bias;   // or null
  int64_t x_stride;
  int64_t y_stride;
  Dtype result;  // f32 or the activations
};

/// What a launch depends on beside the job.
struct SkinnyLaunch {
  int blocks = 0;
  int cluster = 1;
  int shared_bytes = 0;
};

/// One for each format and type of activations; floats only with their own.
template <typename Format, typename T>
void launch_skinny(const Queue& queue, const SkinnyJob& job, const SkinnyLaunch& launch);

}  // namespace quern::cuda
