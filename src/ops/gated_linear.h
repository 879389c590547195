// gated_linear: the second half of a gated feed-forward layer as one operation.
#pragma once

#include "ops/exec.h"
#include "ops/gated.h"
#include "ops/kernel.h"
#include "ops/linear.h"
#include "tensor/tensor.h"

namespace quern {

/// linear_into() of gated(gate_up), bit by bit: y = scale * (activation(gate) * up) W^T + bias, or y += that. Where a
/// GPU multiplies 8-bit floats, what lies between is not written as activations.   gate_up: [tokens, 2 * matrix.cols],
/// not to be read any longer: a GPU that gates what a product makes does not write it.
void gated_linear_into(Exec& exec, Tensor y, Tensor gate_up, Activation activation, const Matrix& matrix,
                       bool accumulate);

/// Of the activations between.
constexpr int64_t gated_bytes(Dtype activations, int32_t tokens, int32_t cols) {
  return (int64_t{tokens} * cols * dtype_bytes(activations) + 255) / 256 * 256;
}

namespace kernels {
/// `scratch` begins with gated_bytes().
inline constinit Kernel<void(Tensor y, Tensor gate_up, Activation activation, const Matrix& matrix, bool accumulate,
                             std::byte* scratch)>
    gated_linear{"gated_linear"};
/// How much scratch that takes behind these.
inline constinit Kernel<void(const Matrix& matrix, int32_t tokens, int64_t& bytes)> gated_linear_scratch{
    "gated_linear_scratch"};
}  // namespace kernels

}  // namespace quern
