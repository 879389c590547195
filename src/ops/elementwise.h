// elementwise: what is done to every value alone.
#pragma once

#include "ops/exec.h"
#include "ops/kernel.h"
#include "tensor/tensor.h"

namespace quern {

/// x += factor * y.   x, y: [tokens, dim] f32
void add(Exec& exec, Tensor x, Tensor y, float factor = 1.0F);
/// x *= factor.
void scale(Exec& exec, Tensor x, float factor);
/// The same with a factor that the device knows.   factor: [1] f32, a constant
void scale_by(Exec& exec, Tensor x, Tensor factor);
/// x = cap * tanh(x / cap).
void softcap(Exec& exec, Tensor x, float cap);
/// x *= sigmoid(gate), one gate for each row.   x: [tokens, dim] activations   gate: [tokens, 1] f32
void gate_rows(Exec& exec, Tensor x, Tensor gate);
/// y = x.   x, y: [tokens, heads, dim] activations, outer axes may be strided
void copy_heads(Exec& exec, Tensor y, Tensor x);
/// x as activations: itself where they are f32.   x: [tokens, dim] f32
Tensor to_activations(Exec& exec, Tensor x);

namespace kernels {
inline constinit Kernel<void(Tensor x, Tensor y, float factor)> add{"add"};
/// y = x, in the type of y.
inline constinit Kernel<void(Tensor y, Tensor x)> convert{"convert"};
inline constinit Kernel<void(Tensor x, float factor)> scale{"scale"};
inline constinit Kernel<void(Tensor x, Tensor factor)> scale_by{"scale_by"};
inline constinit Kernel<void(Tensor x, float cap)> softcap{"softcap"};
inline constinit Kernel<void(Tensor x, Tensor gate)> gate_rows{"gate_rows"};
inline constinit Kernel<void(Tensor y, Tensor x)> copy_heads{"copy_heads"};
}  // namespace kernels

}  // namespace quern
