// Activations of feed-forward layers on floats; T is the type that the result is rounded to.
#pragma once

#include "ops/gated.h"

namespace quern::cuda {

/// x / (1 + e^-z). For results of 16 bits the fast instructions are exact enough.
template <typename T>
__device__ __forceinline__ float times_sigmoid(float x, float z) {
  if constexpr (sizeof(T) == 2) {
    // __fdividef gives 0 for divisors above 2^126, which is the right result here.
    return __fdividef(x, 1.0F + __expf(-z));
  } else {
    return x / (1.0F + expf(-z));
  }
}

/// Of those that can do without a gate.
template <typename T>
__device__ __forceinline__ float activate(float x, Activation activation) {
  if (activation == Activation::silu) return times_sigmoid<T>(x, x);
  // x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 x^3)) is the tanh form.
  if (activation == Activation::gelu_tanh) return times_sigmoid<T>(x, x * fmaf(x * x, 0.0713548163F, 1.59576912F));
  if (activation == Activation::relu) return x < 0.0F ? 0.0F : x;
  return x * normcdff(x);
}

/// activation(x) * up
template <typename T>
__device__ __forceinline__ float gated_value(float x, float up, Activation activation) {
  if (activation != Activation::clamped_swiglu) return activate<T>(x, activation) * up;
  const float g = x > swiglu_limit ? swiglu_limit : x;
  const float low = up < -swiglu_limit ? -swiglu_limit : up;
  return times_sigmoid<T>(g, swiglu_alpha * g) * ((low > swiglu_limit ? swiglu_limit : low) + 1.0F);
}

}  // namespace quern::cuda
