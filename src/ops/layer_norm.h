// layer_norm: normalisation that takes the mean off.
#pragma once

#include "ops/exec.h"
#include "ops/kernel.h"
#include "tensor/tensor.h"

namespace quern {

/// y = (x - mean) / sqrt(variance + eps) * weight + bias along the last axis, computed in float.
/// x: [tokens, dim] f32   weight: [dim] f32   bias: the same, or none   y: [tokens, dim] activations
Tensor layer_norm(Exec& exec, Tensor x, Tensor weight, Tensor bias, float eps);
/// The same into memory of the caller, of any float type; y may be x.
void layer_norm_into(Exec& exec, Tensor y, Tensor x, Tensor weight, Tensor bias, float eps);
/// In place, over every head of every token.   x: [tokens, heads * head_dim] activations
/// weight: [heads, head_dim] f32
void layer_norm_heads(Exec& exec, Tensor x, Tensor weight, float eps);

namespace kernels {
/// y and x: [tokens, dim] or [tokens, heads, dim], outer axes may be strided; y may be x.
/// weight: [dim], or for heads [heads, dim]   bias: [dim], or none
inline constinit Kernel<void(Tensor y, Tensor x, Tensor weight, Tensor bias, float eps)> layer_norm{"layer_norm"};
}  // namespace kernels

}  // namespace quern
