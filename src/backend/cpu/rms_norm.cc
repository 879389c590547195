#include "ops/rms_norm.h"

#include <cmath>

#include "backend/cpu/simd.h"
#include "base/thread_pool.h"

namespace quern::QUERN_ISA {
namespace {

float sum_of_squares(const float* x, int32_t dim) {
  Floats sums[4] = {};
  int32_t i = 0;
  for (; i + 4 * lanes <= dim; i += 4 * lanes) {
    for (int part = 0; part < 4; ++part) {
      const Floats value = load(x + i + part * lanes);
      sums[part] = fma(value, value, sums[part]);
    }
  }
  for (; i + lanes <= dim; i += lanes) sums[0] = fma(load(x + i), load(x + i), sums[0]);
  float total = sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; i < dim; ++i) total += x[i] * x[i];
  return total;
}

void normalize(float* y, const float* x, const float* weight, int32_t dim, float eps) {
  const float scale = 1.0F / std::sqrt(sum_of_squares(x, dim) / static_cast<float>(dim) + eps);
  map(y, x, weight, dim, [&](Floats value, Floats w) { return value * scale * w; });
}

void rms_norm(Queue queue, Tensor y, Tensor x, Tensor weight, float eps) {
  const int32_t inner = x.rank == 3 ? x.dims[1] : 1;
  const int32_t dim = x.dims[x.rank - 1];
  const int64_t grain = 1 + 2048 / dim;  // starting the team takes about half a microsecond
  auto& pool = *static_cast<ThreadPool*>(queue.native);
  pool.parallel_for(int64_t{x.dims[0]} * inner, grain, [&](int64_t begin, int64_t end) {
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
