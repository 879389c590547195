// Where a kernel finds what a recurrent layer keeps of a row.
#pragma once

#include "ops/row_state.h"

namespace quern::cuda {

__device__ __forceinline__ float* state_of(const RowState& state, int row) {
  return reinterpret_cast<float*>(state.rows + row * state.row_bytes + state.offset);
}

}  // namespace quern::cuda
