#include "ops/activate.h"

#include "backend/cpu/activation.h"
#include "base/thread_pool.h"

namespace quern::QUERN_ISA {
namespace {

void activate(Queue queue, Tensor x, Activation activation) {
  const int32_t hidden = x.dims[1];
  constexpr int32_t piece = 1024;  // columns of one unit of work, so that one token keeps several threads busy
  const int64_t pieces = (hidden + piece - 1) / piece;
  auto& pool = *static_cast<ThreadPool*>(queue.native);
  pool.parallel_for(x.dims[0] * pieces, 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int32_t first = static_cast<int32_t>(i % pieces) * piece;
      float* const values = x.row<float>(i / pieces) + first;
      const int32_t count = hidden - first < piece ? hidden - first : piece;
      visit_activation(activation, [&](auto&& f) { map(values, values, count, f); });
    }
  });
}

const bool added = kernels::activate.add(DeviceKind::cpu, Isa::QUERN_ISA, activate);

}  // namespace
}  // namespace quern::QUERN_ISA
