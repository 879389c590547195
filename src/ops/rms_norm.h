// rms_norm: root-mean-square normalisation.
#pragma once

#include "ops/exec.h"
#include "ops/kernel.h"
#include "tensor/tensor.h"

namespace quern {

/// y = x / rms(x) * weight along the last axis, computed in float.   x: [tokens, dim] f32   weight: [dim] f32
/// y: [tokens, dim] activations
Tensor rms_norm(Exec& exec, Tensor x, Tensor weight, float eps);
/// The same into memory of the caller, of any float type.
void rms_norm_into(Exec& exec, Tensor y, Tensor x, Tensor weight, float eps);
/// In place, over every head of every token.   x: [tokens, heads * head_dim] activations   weight: [head_dim] f32
void rms_norm_heads(Exec& exec, Tensor x, Tensor weight, float eps);
/// [tokens, heads, head_dim] as a view of [tokens, heads * head_dim].
Tensor heads_of(Tensor x, int32_t head_dim);

namespace kernels {
/// y and x: [tokens, dim] or [tokens, heads, dim], outer axes may be strided; y may be x.
inline constinit Kernel<void(Tensor y, Tensor x, Tensor weight, float eps)> rms_norm{"rms_norm"};
}  // namespace kernels

}  // namespace quern
