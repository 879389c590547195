#include "ops/modulate.h"

#include "backend/cpu/simd.h"
#include "base/thread_pool.h"

namespace quern::QUERN_ISA {
namespace {

void modulate_row(float* x, const float* gate, int32_t count, Modulation f) {
  switch (f) {
    case Modulation::identity: return map(x, x, gate, count, [](Floats v, Floats g) { return v * g; });
    case Modulation::sigmoid: return map(x, x, gate, count, [](Floats v, Floats g) { return v * sigmoid(g); });
    case Modulation::silu: return map(x, x, gate, count, [](Floats v, Floats g) { return v * (g * sigmoid(g)); });
  }
}

void modulate(Queue queue, Tensor x, Tensor gate, Modulation f) {
  const int64_t grain = 1 + 4096 / x.dims[1];
  auto& pool = *static_cast<ThreadPool*>(queue.native);
  pool.parallel_for(x.dims[0], grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) modulate_row(x.row<float>(t), gate.row<float>(t), x.dims[1], f);
  });
}

const bool added = kernels::modulate.add(DeviceKind::cpu, Isa::QUERN_ISA, modulate);

}  // namespace
}  // namespace quern::QUERN_ISA
