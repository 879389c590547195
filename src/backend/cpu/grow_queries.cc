#include "ops/grow_queries.h"

#include <cmath>

#include "backend/cpu/simd.h"
#include "base/thread_pool.h"

namespace quern::QUERN_ISA {
namespace {

void grow_queries(Queue queue, Tensor q, Tensor positions, float beta, float period) {
  auto& pool = *static_cast<ThreadPool*>(queue.native);
  pool.parallel_for(q.dims[0], 4, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      const float periods = std::floor(static_cast<float>(positions.as<int32_t>()[token]) / period);
      const float factor = 1.0F + beta * std::log1p(periods);
      float* const values = q.row<float>(token);
      map(values, values, q.dims[1], [&](Floats value) { return value * factor; });
    }
  });
}

const bool added = kernels::grow_queries.add(DeviceKind::cpu, Isa::QUERN_ISA, grow_queries);

}  // namespace
}  // namespace quern::QUERN_ISA
