// grow_queries: queries that grow with their position, so that attention stays sharp over long contexts.
#pragma once

#include "ops/exec.h"
#include "ops/kernel.h"
#include "tensor/tensor.h"

namespace quern {

/// q[t] *= 1 + beta * ln(1 + floor(positions[t] / period)).   q: [tokens, dim] activations   positions: [tokens] i32
void grow_queries(Exec& exec, Tensor q, Tensor positions, float beta, float period);

namespace kernels {
inline constinit Kernel<void(Tensor q, Tensor positions, float beta, float period)> grow_queries{"grow_queries"};
}  // namespace kernels

}  // namespace quern
