#include "ops/pool.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/simd.h"
#include "base/thread_pool.h"

namespace quern::QUERN_ISA {
namespace {

constexpr int32_t piece = 256;  // columns of one unit of work, so that one long sequence keeps several threads busy

/// What a sum of so many tokens is divided by.
float divisor(TokenPool kind, int32_t tokens) {
  const auto count = static_cast<float>(tokens);
  switch (kind) {
    case TokenPool::mean: return count;
    case TokenPool::largest: return 1.0F;
    case TokenPool::weighted_mean: return count * (count + 1.0F) / 2.0F;
    case TokenPool::mean_sqrt_len: return std::sqrt(count);
  }
  return 1.0F;
}

void mean_pool(Queue queue, Tensor y, Tensor sums, Tensor x, const Segments& segments, TokenPool kind) {
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
      const float least = kind == TokenPool::largest ? -std::numeric_limits<float>::infinity() : 0.0F;
      if (positions[starts[segment]] == 0) std::fill_n(sum, count, least);
      for (int32_t token = starts[segment]; token <= last; ++token) {
        const float* const from = x.row<float>(token) + first;
        const float weight = kind == TokenPool::weighted_mean ? static_cast<float>(positions[token] + 1) : 1.0F;
        if (kind == TokenPool::largest) {
          map(sum, sum, from, count, [](Floats a, Floats b) { return max(b, a); });
        } else {
          map(sum, sum, from, count, [&](Floats a, Floats b) { return a + b * weight; });
        }
      }
      const float by = divisor(kind, positions[last] + 1);
      map(y.row<float>(segment) + first, sum, count, [&](Floats a) { return a / by; });
    }
  });
}

const bool added = kernels::mean_pool.add(DeviceKind::cpu, Isa::QUERN_ISA, mean_pool);

}  // namespace
}  // namespace quern::QUERN_ISA
