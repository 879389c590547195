// What a product reads, writes and computes.
#pragma once

#include "ops/cost.h"
#include "ops/linear.h"

namespace quern {

/// Of y = x W^T, or of the same with `x` made by a gate on its way; y is read too where it is added to.
inline Cost cost_of_product(DeviceKind device, Tensor y, Tensor x, const Matrix& matrix, bool accumulate) {
  Cost cost{.rows = matrix.rows, .cols = matrix.cols};
  cost.bytes = bytes_of(x) + bytes_of(y) * (accumulate ? 2 : 1);
  for (int i = 0; i < matrix.count; ++i) {
    const Weight& part = matrix.parts[i];
    cost.bytes += static_cast<double>(packed_bytes(device, part.format, part.rows, part.cols));
    cost.eight_bit = cost.eight_bit || part.format == FormatId::f8 || part.format == FormatId::f8_block;
  }
  cost.flops = 2.0 * x.dims[0] * matrix.rows * matrix.cols;
  return cost;
}

}  // namespace quern
