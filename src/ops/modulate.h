// modulate: values times a function of other values.
#pragma once

#include <cstdint>

#include "ops/exec.h"
#include "ops/kernel.h"
#include "tensor/tensor.h"

namespace quern {

enum class Modulation : uint8_t { identity, sigmoid, silu };

/// x *= f(gate).   x, gate: [tokens, dim] activations
void modulate(Exec& exec, Tensor x, Tensor gate, Modulation f);

namespace kernels {
inline constinit Kernel<void(Tensor x, Tensor gate, Modulation f)> modulate{"modulate"};
}  // namespace kernels

}  // namespace quern
