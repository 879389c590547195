// activate: the activation of a feed-forward layer without a gate.
#pragma once

#include "ops/gated.h"

namespace quern {

/// x = activation(x); not clamped_swiglu, which is one of two values.   x: [tokens, hidden] activations
void activate(Exec& exec, Tensor x, Activation activation);

namespace kernels {
inline constinit Kernel<void(Tensor x, Activation activation)> activate{"activate"};
}  // namespace kernels

}  // namespace quern
