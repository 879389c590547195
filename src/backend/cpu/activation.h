// Activations of feed-forward layers on vectors.
#pragma once

#include "backend/cpu/simd.h"
#include "base/check.h"
#include "ops/gated.h"

namespace quern::QUERN_ISA {

/// x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 x^3)), which is the tanh form.
QUERN_INLINE Floats gelu_tanh(Floats x) {
  const Floats inner = x * fma(x * x, broadcast(0.0713548163F), broadcast(1.59576912F));
  return x * sigmoid(inner);
}

/// x * Phi(x). The upper tail of the normal distribution is a polynomial in t times e^(-x^2/2) (Abramowitz and Stegun
/// 7.1.26, absolute error below 1e-7), so that small results keep their accuracy.
QUERN_INLINE Floats gelu_erf(Floats x) {
  const Floats magnitude = max(x, -x);
  const Floats t = 1.0F / fma(magnitude, broadcast(0.3275911F * 0.707106781F), broadcast(1.0F));
  Floats p = broadcast(1.061405429F);
  p = fma(p, t, broadcast(-1.453152027F));
  p = fma(p, t, broadcast(1.421413741F));
  p = fma(p, t, broadcast(-0.284496736F));
  p = fma(p, t, broadcast(0.254829592F));
  const Floats tail = 0.5F * p * t * exp(x * x * -0.5F);
  return x * (x > 0.0F ? 1.0F - tail : tail);
}

/// Calls body(f), where f(Floats) -> Floats is an activation that can do without a gate.
template <typename Body>
QUERN_INLINE void visit_activation(Activation activation, Body&& body) {
  switch (activation) {
    case Activation::silu: return body([](Floats x) { return x * sigmoid(x); });
    case Activation::gelu_tanh: return body([](Floats x) { return gelu_tanh(x); });
    case Activation::gelu_erf: return body([](Floats x) { return gelu_erf(x); });
    case Activation::relu: return body([](Floats x) { return x < 0.0F ? Floats{} : x; });
    case Activation::clamped_swiglu: CHECK(false);
  }
}

}  // namespace quern::QUERN_ISA
