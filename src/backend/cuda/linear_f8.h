// Activations as 8-bit floats, for products of both in the library.
#pragma once

#include "backend/cuda/held.h"
#include "backend/cuda/launch.h"
#include "ops/gated.h"
#include "ops/linear.h"
#include "tensor/tensor.h"

namespace quern::cuda {

/// Each token as 8-bit floats and a scale, columns as f8_place() has them, zeros beyond the last.
/// x: [tokens, cols] f16 or bf16   to: [tokens, f8_columns(cols)]   scales: [tokens]
void quantize_tokens(const Queue& queue, std::byte* to, float* scales, Tensor x);

/// The same of what a norm makes, which is written too.   activations: their type, f16 or bf16
void quantize_normed(const Queue& queue, std::byte* to, float* scales, const NormBefore& norm, Dtype activations);

/// The same of gated(gate_up), as if it had been written; false, with nothing done, for rows that are too long or lie
/// askew.
bool quantize_gated(const Queue& queue, std::byte* to, float* scales, Tensor gate_up, Activation activation);

/// linear() of gated(gate_up) where activations of 8-bit floats are multiplied; false where they are not, or where the
/// library cannot. `scratch` is that of linear().
bool f8_linear_of_gated(const Queue& queue, Tensor y, Tensor gate_up, Activation activation, const Matrix& matrix,
                        bool accumulate, std::byte* scratch);

}  // namespace quern::cuda
