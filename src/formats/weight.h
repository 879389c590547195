// Weight: a matrix in a runtime format. A view; the weight store owns the memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quern {

/// One per header of this folder; formats/list.h maps it to the format's struct.
enum class FormatId : uint8_t {
  f32,
  f16,
  bf16,
  q4_0,
  q4_1,
  q5_0,
  q8_0,
  q4_k,
  q6_k,
  f8,
  f8_block,
  q5_1,
  q2_0,
  q2_k,
  q3_k,
  q5_k,
  iq4_nl,
  iq4_xs,
  iq3_xxs,
  iq3_s,
  iq2,
  iq1,
  mxfp4,
  nvfp4,
};

/// How the two planes of a weight lie in memory.
enum class Layout : uint8_t {
  rows,    // row by row: data plane [rows][groups][data_bytes], scale plane [rows][groups][scale_bytes];
           // groups_of(): what the last group has beyond the columns says nothing
  packed,  // as the device's linear kernel wants it (ops/linear.h); one block of memory, `scales` is null
};

/// rows = outputs, cols = inputs:  y = x W^T.
struct Weight {
  FormatId format = FormatId::f32;
  Layout layout = Layout::rows;
  int32_t rows = 0;
  int32_t cols = 0;
  std::byte* data = nullptr;
  std::byte* scales = nullptr;

  explicit operator bool() const { return data != nullptr; }
};

}  // namespace quern
