#include "ops/gated.h"

#include "backend/cpu/activation.h"
#include "base/thread_pool.h"

namespace quern::QUERN_ISA {
namespace {

Floats clamped_swiglu(Floats gate, Floats up) {
  const Floats g = gate > swiglu_limit ? broadcast(swiglu_limit) : gate;
  const Floats low = up < -swiglu_limit ? broadcast(-swiglu_limit) : up;
  const Floats u = low > swiglu_limit ? broadcast(swiglu_limit) : low;
  return g * sigmoid(swiglu_alpha * g) * (u + 1.0F);
}

void gated_row(float* y, const float* gate, const float* up, int32_t hidden, Activation activation) {
  if (activation == Activation::clamped_swiglu) return map(y, gate, up, hidden, clamped_swiglu);
  visit_activation(activation,
                   [&](auto&& f) { map(y, gate, up, hidden, [&](Floats g, Floats u) { return f(g) * u; }); });
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
