#include "ops/rms_norm.h"

#include <cmath>

#include "base/thread_pool.h"

namespace quern::QUERN_ISA {
namespace {

void normalize(float* y, const float* x, const float* weight, int32_t dim, float eps) {
  float sums[8] = {};
  for (int32_t i = 0; i < dim; ++i) sums[i % 8] += x[i] * x[i];
  const float sum = ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
  const float scale = 1.0F / std::sqrt(sum / static_cast<float>(dim) + eps);
  for (int32_t i = 0; i < dim; ++i) y[i] = x[i] * scale * weight[i];
}

void rms_norm(Queue queue, Tensor y, Tensor x, Tensor weight, float eps) {
  const int32_t inner = x.rank == 3 ? x.dims[1] : 1;
  const int32_t dim = x.dims[x.rank - 1];
  auto& pool = *static_cast<ThreadPool*>(queue.native);
  pool.parallel_for(int64_t{x.dims[0]} * inner, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t token = i / inner;
      const int64_t head = i % inner;
      normalize(y.as<float>() + token * y.strides[0] + head * y.strides[1],
                x.as<float>() + token * x.strides[0] + head * x.strides[1], weight.as<float>(), dim, eps);
    }
  });
}

const bool added = kernels::rms_norm.add(DeviceKind::cpu, Isa::QUERN_ISA, rms_norm);

}  // namespace
}  // namespace quern::QUERN_ISA
