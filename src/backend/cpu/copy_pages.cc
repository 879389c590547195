#include "ops/copy_pages.h"

#include <cstring>

#include "base/thread_pool.h"

namespace quern::QUERN_ISA {
namespace {

void copy_pages(Queue queue, std::byte* pool, int64_t page_bytes, Tensor from, Tensor to) {
  auto& threads = *static_cast<ThreadPool*>(queue.native);
  threads.parallel_for(from.dims[0], 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(pool + to.as<int32_t>()[i] * page_bytes, pool + from.as<int32_t>()[i] * page_bytes,
                  static_cast<size_t>(page_bytes));
    }
  });
}

const bool added = kernels::copy_pages.add(DeviceKind::cpu, Isa::QUERN_ISA, copy_pages);

}  // namespace
}  // namespace quern::QUERN_ISA
