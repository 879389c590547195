// The product of a gate and an up projection with many tokens, whose results are gated as they are made.
#pragma once

#include "backend/cuda/blas.h"
#include "ops/gated.h"

namespace quern::cuda {

/// What is multiplied: y = activation(gate) * up, where gate and up = round(x W^T).
/// x: [tokens, cols]   w: [2 hidden, cols], the gate's rows first   y: [tokens, hidden]; all of one 16-bit type.
struct GatedProduct {
  Dtype type = Dtype::bf16;
  int32_t tokens = 0;
  int32_t hidden = 0;
  int32_t cols = 0;
  int64_t x_stride = 0;  // elements between tokens
  const std::byte* x = nullptr;
  const std::byte* w = nullptr;
};

/// Whether gated_product() can, and is faster than the library with gated() behind it: measured.
bool takes_gated(const GatedProduct& product);

/// y is aligned to 16 bytes in every row.
void gated_product(const Queue& queue, const GatedProduct& product, Tensor y, Activation activation);

}  // namespace quern::cuda
