#include "ops/select.h"

#include <cstring>

#include "base/thread_pool.h"

namespace quern::QUERN_ISA {
namespace {

void select_rows(Queue queue, Tensor y, Tensor x, Tensor indices) {
  auto& pool = *static_cast<ThreadPool*>(queue.native);
  pool.parallel_for(y.dims[0], 32, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int32_t index = indices.as<int32_t>()[i];
      DCHECK(index >= 0 && index < x.dims[0]);
      std::memcpy(y.row<float>(i), x.row<float>(index), static_cast<size_t>(y.dims[1]) * sizeof(float));
    }
  });
}

const bool added = kernels::select_rows.add(DeviceKind::cpu, Isa::QUERN_ISA, select_rows);

}  // namespace
}  // namespace quern::QUERN_ISA
