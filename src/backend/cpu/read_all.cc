#include "ops/read_all.h"

#include "base/thread_pool.h"

namespace quern::QUERN_ISA {
namespace {

void read_all(Queue queue, Tensor memory, Tensor sums) {
  auto& pool = *static_cast<ThreadPool*>(queue.native);
  const int64_t words = memory.dims[0];
  const int64_t parts = sums.dims[0];
  pool.parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      uint32_t sum = 0;
      for (int64_t i = words * part / parts; i < words * (part + 1) / parts; ++i) {
        sum += static_cast<uint32_t>(memory.as<int32_t>()[i]);
      }
      sums.as<int32_t>()[part] = static_cast<int32_t>(sum);
    }
  });
}

const bool added = kernels::read_all.add(DeviceKind::cpu, Isa::QUERN_ISA, read_all);

}  // namespace
}  // namespace quern::QUERN_ISA
