#include "ops/pool.h"

#include <algorithm>

#include "backend/cpu/simd.h"
#include "base/thread_pool.h"

namespace quern::QUERN_ISA {
namespace {

constexpr int32_t piece = 256;  // columns of one unit of work, so that one long sequence keeps several threads busy

void mean_pool(Queue queue, Tensor y, Tensor sums, Tensor x, const Segments& segments) {
  const int32_t dim = x.dims[1];
  const int64_t pieces = (dim + piece - 1) / piece;
  const int32_t* const starts = segments.starts.as<int32_t>();
  const int32_t* const positions = segments.positions.as<int32_t>();
  auto& pool = *static_cast<ThreadPool*>(queue.native);
  pool.parallel_for(y.dims[0] * pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t segment = i / pieces;
      const auto first = static_cast<int32_t>(i % pieces) * piece;
      const int32_t count = std::min(piece, dim - first);
      const int32_t last = starts[segment + 1] - 1;
      float* const sum = sums.row<float>(segments.rows.as<int32_t>()[segment]) + first;
      if (positions[starts[segment]] == 0) std::fill_n(sum, count, 0.0F);
      for (int32_t token = starts[segment]; token <= last; ++token) {
        map(sum, sum, x.row<float>(token) + first, count, [](Floats a, Floats b) { return a + b; });
      }
      const auto tokens = static_cast<float>(positions[last] + 1);
      map(y.row<float>(segment) + first, sum, count, [&](Floats a) { return a / tokens; });
    }
  });
}

const bool added = kernels::mean_pool.add(DeviceKind::cpu, Isa::QUERN_ISA, mean_pool);

}  // namespace
}  // namespace quern::QUERN_ISA
