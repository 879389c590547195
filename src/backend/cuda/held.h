// An operation that is not launched yet: the next one may do it on its way, so that a step has fewer kernels that wait
// for each other. Whatever else is done with the queue launches it first.
#pragma once

#include <functional>

#include "backend/cuda/launch.h"
#include "ops/gated.h"
#include "tensor/tensor.h"

namespace quern::cuda {

/// What a product can begin with: of each token, normed = round(x * weight / sqrt(mean of x^2 + eps)).
struct NormBefore {
  const float* x = nullptr;  // or none
  const float* weight = nullptr;
  void* normed = nullptr;  // of the product's own activations
  float eps = 0.0F;
  int tokens = 0;
  int cols = 0;
  int64_t x_stride = 0;  // elements between tokens
  int64_t normed_stride = 0;
};
inline constexpr int most_norm_columns = 8192;

using HeldGated = std::function<void(const Queue&, Tensor y, Activation)>;

struct Held {
  const std::byte* result = nullptr;              // where it goes; none: nothing is held
  std::function<void(const Queue&)> launch = {};  // as it is
  NormBefore norm = {};                           // if it is a norm
  /// If it is the product of a gate and an up projection: launches it so that y = activation(gate) * up comes with it.
  HeldGated gated = {};
  /// The same for when nobody reads the product itself any longer.
  HeldGated only_gated = {};
};

/// Holds an operation; one that was held before is launched. Not for batch-invariant queues.
void hold(const Queue& queue, Held held);

/// The norm that is held, if it makes x: it is the caller's then. Else none, and what is held stays.
NormBefore take_norm(const Queue& queue, const Tensor& x);

/// The same of Held::gated, if its product makes gate_up.
HeldGated take_gated(const Queue& queue, const Tensor& gate_up);

/// The same of Held::only_gated.
HeldGated take_only_gated(const Queue& queue, const Tensor& gate_up);

}  // namespace quern::cuda
