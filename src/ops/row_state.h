// RowState: what a recurrent layer keeps of every row from step to step, in memory that never moves.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quern {

/// The layer's part of row r begins at rows + r * row_bytes + offset; how it is laid out is the device's own business.
/// A segment that begins at position 0 begins with zeros, whatever the memory holds. Segments at position -1 are
/// nobody's: they leave all state alone, and their results are zeros.
struct RowState {
  std::byte* rows = nullptr;
  int64_t row_bytes = 0;
  int64_t offset = 0;

  float* of(int32_t row) const { return reinterpret_cast<float*>(rows + row * row_bytes + offset); }
};

}  // namespace quern
