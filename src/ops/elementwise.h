// elementwise: what is done to every value alone, in place.
#pragma once

#include "ops/exec.h"
#include "ops/kernel.h"
#include "tensor/tensor.h"

namespace quern {

/// x += y.   x, y: [tokens, dim] f32
void add(Exec& exec, Tensor x, Tensor y);
/// x *= factor.
void scale(Exec& exec, Tensor x, float factor);
/// x = cap * tanh(x / cap).
void softcap(Exec& exec, Tensor x, float cap);

namespace kernels {
inline constinit Kernel<void(Tensor x, Tensor y)> add{"add"};
inline constinit Kernel<void(Tensor x, float factor)> scale{"scale"};
inline constinit Kernel<void(Tensor x, float cap)> softcap{"softcap"};
}  // namespace kernels

}  // namespace quern
