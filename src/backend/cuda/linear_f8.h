// Activations as 8-bit floats, for products of both in the library.
#pragma once

#include "backend/cuda/launch.h"
#include "tensor/tensor.h"

namespace quern::cuda {

/// Each token as 8-bit floats and a scale, columns as f8_place() has them, zeros beyond the last.
/// x: [tokens, cols] f16 or bf16   to: [tokens, f8_columns(cols)]   scales: [tokens]
void quantize_tokens(const Queue& queue, std::byte* to, float* scales, Tensor x);

}  // namespace quern::cuda
