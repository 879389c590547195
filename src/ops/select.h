// select_rows: some rows of a matrix, in a given order.
#pragma once

#include "ops/exec.h"
#include "ops/kernel.h"
#include "tensor/tensor.h"

namespace quern {

/// y[i] = x[indices[i]].   x: [tokens, dim], y of its type   indices: [n] i32   y: [n, dim]
Tensor select_rows(Exec& exec, Tensor x, Tensor indices);

namespace kernels {
inline constinit Kernel<void(Tensor y, Tensor x, Tensor indices)> select_rows{"select_rows"};
}  // namespace kernels

}  // namespace quern
