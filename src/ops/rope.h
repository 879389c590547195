// rope: rotary positions.
#pragma once

#include "ops/exec.h"
#include "ops/kernel.h"
#include "tensor/tensor.h"

namespace quern {

/// Cosines and sines of a step, once for all layers of equal frequencies, accurate to a rounding at any position.
/// positions: [tokens] i32   inverse_frequencies: [dims / 2] f32   result: [tokens, dims], cosines then sines, times
/// factor
Tensor rope_table(Exec& exec, Tensor positions, Tensor inverse_frequencies, float factor);

/// Rotates the first `dims` values of every head in place: pairs (i, i + dims/2), or (2i, 2i + 1) when interleaved.
/// x: [tokens, heads * head_dim] activations   table: [tokens, dims], dims <= head_dim
void rope(Exec& exec, Tensor x, Tensor table, int head_dim, bool interleaved);

namespace kernels {
inline constinit Kernel<void(Tensor table, Tensor positions, Tensor inverse_frequencies, float factor)> rope_table{
    "rope_table"};
inline constinit Kernel<void(Tensor x, Tensor table, int head_dim, bool interleaved)> rope{"rope"};
}  // namespace kernels

}  // namespace quern
