// The product of a weight that lies in rows (floats, 8-bit floats) with one token, limited by how fast the weight can
// be read.
#pragma once

#include <cstdint>

#include "backend/cuda/held.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/packed.cuh"
#include "tensor/dtype.h"

namespace quern::cuda {

inline constexpr int one_warps = 8;
inline constexpr int one_loads = 16;   // of 16 bytes that a lane has under way, of all rows of its group
inline constexpr int one_piece = 512;  // bytes of a row that a warp loads at once
/// Bytes of x for each piece.
template <typename Format>
inline constexpr int one_x_piece = is_f8<Format> ? 2 * one_piece : one_piece;
inline constexpr int most_one_shared = 200 << 10;

/// Bytes of a row that are columns.
template <typename Format>
QUERN_HOST_DEVICE int one_data_bytes(int32_t cols) {
  return is_f8<Format> ? f8_columns(cols) : 2 * cols;
}
/// Steps of one_loads loads for the rows of a group, and the bytes of x beside them.
QUERN_HOST_DEVICE int one_steps(int data_bytes, int group) {
  const int step_bytes = one_loads / group * one_piece;
  return (data_bytes + step_bytes - 1) / step_bytes;
}
template <typename Format>
QUERN_HOST_DEVICE int one_x_bytes(int steps, int group) {
  return steps * (one_loads / group) * one_x_piece<Format>;
}

/// Shared memory that makes a block the only one of its kind on an SM and leaves room there for one of attention. A
/// grid of a block for each SM is so spread evenly: its blocks begin while others end, and where two fit, nearly half
/// of the SMs were seen with two of them and as many with none.
int lone_bytes();

/// y[first_row[p] + r] = part p's row r times x, times scale, plus bias.
struct OneJob {
  const std::byte* data[3];
  int32_t rows[3];
  int32_t first_row[3];
  int32_t groups_end[3];  // groups of rows of the parts up to this one; of gated rows, of both the first one
  int32_t parts;
  int32_t cols;
  int32_t row_bytes;   // from row to row
  int32_t data_bytes;  // of a row that are columns
  int32_t steps;       // of one_loads loads for a group
  bool x_aligned;      // to 16 bytes
  bool accumulate;
  Dtype result;  // f32 or the activations
  const void* x;
  void* y;
  const float* scale;  // or null
  const float* bias;   // or null
  NormBefore norm;     // or none: what x is made by
  void* gated;         // or null: where activation(y of part 0) * y of part 1 goes, as activations
  Activation activation;
};

/// What a launch depends on beside the job.
struct OneLaunch {
  int group = 0;  // rows that a warp multiplies at once: 2 or 4
  int shared_bytes = 0;
};

/// One for each format and type of activations.
template <typename Format, typename T>
void launch_one(const Queue& queue, const OneJob& job, const OneLaunch& launch);

}  // namespace quern::cuda
