#include "ops/gated.h"

#include "backend/cpu/simd.h"
#include "base/thread_pool.h"

namespace quern::QUERN_ISA {
namespace {

/// x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 x^3)), which is the tanh form.
Floats gelu_tanh(Floats x) {
  const Floats inner = x * fma(x * x, broadcast(0.0713548163F), broadcast(1.59576912F));
  return x * sigmoid(inner);
}

/// x * Phi(x). The upper tail of the normal distribution is a polynomial in t times e^(-x^2/2) (Abramowitz and Stegun
/// 7.1.26, absolute error below 1e-7), so that small results keep their accuracy.
Floats gelu_erf(Floats x) {
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

Floats clamped_swiglu(Floats gate, Floats up) {
  const Floats g = gate > swiglu_limit ? broadcast(swiglu_limit) : gate;
  const Floats low = up < -swiglu_limit ? broadcast(-swiglu_limit) : up;
  const Floats u = low > swiglu_limit ? broadcast(swiglu_limit) : low;
  return g * sigmoid(swiglu_alpha * g) * (u + 1.0F);
}

void gated_row(float* y, const float* gate, const float* up, int32_t hidden, Activation activation) {
  switch (activation) {
    case Activation::silu: return map(y, gate, up, hidden, [](Floats g, Floats u) { return g * sigmoid(g) * u; });
    case Activation::gelu_tanh: return map(y, gate, up, hidden, [](Floats g, Floats u) { return gelu_tanh(g) * u; });
    case Activation::gelu_erf: return map(y, gate, up, hidden, [](Floats g, Floats u) { return gelu_erf(g) * u; });
    case Activation::clamped_swiglu: return map(y, gate, up, hidden, clamped_swiglu);
  }
}

void gated(Queue queue, Tensor y, Tensor gate_up, Activation activation) {
  const int32_t hidden = y.dims[1];
  constexpr int32_t piece = 1024;  // columns of one unit of work, so that one token keeps several threads busy
  const int64_t pieces = (hidden + piece - 1) / piece;
  auto& pool = *static_cast<ThreadPool*>(queue.native);
  pool.parallel_for(y.dims[0] * pieces, 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t token = i / pieces;
      const int32_t first = static_cast<int32_t>(i % pieces) * piece;
      const float* gate = gate_up.row<float>(token) + first;
      const int32_t count = hidden - first < piece ? hidden - first : piece;
      gated_row(y.row<float>(token) + first, gate, gate + hidden, count, activation);
    }
  });
}

const bool added = kernels::gated.add(DeviceKind::cpu, Isa::QUERN_ISA, gated);

}  // namespace
}  // namespace quern::QUERN_ISA
