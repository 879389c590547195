// gated: the activation of a gated feed-forward layer.
#pragma once

#include <cstdint>

#include "ops/exec.h"
#include "ops/kernel.h"
#include "tensor/tensor.h"

namespace quern {

enum class Activation : uint8_t {
  silu,
  gelu_tanh,
  gelu_erf,
  relu,
  clamped_swiglu,  // g * sigmoid(1.702 g) of g = min(gate, 7), times 1 + up clamped to [-7, 7] (gpt-oss)
};
inline constexpr float swiglu_limit = 7.0F;
inline constexpr float swiglu_alpha = 1.702F;

/// y = activation(gate) * up.   gate_up: [tokens, 2 * hidden], gate first   y: [tokens, hidden], of its type
Tensor gated(Exec& exec, Tensor gate_up, Activation activation);

namespace kernels {
inline constinit Kernel<void(Tensor y, Tensor gate_up, Activation activation)> gated{"gated"};
}  // namespace kernels

}  // namespace quern
