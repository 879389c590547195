#include "ops/layer_norm.h"

#include <cmath>

#include "backend/cpu/simd.h"
#include "base/thread_pool.h"

namespace quern::QUERN_ISA {
namespace {

/// The sum of term(x) over a row, in one fixed order.
template <typename Term>
float sum_of(const float* x, int32_t dim, Term&& term) {
  Floats sums[4] = {};
  int32_t i = 0;
  for (; i + 4 * lanes <= dim; i += 4 * lanes) {
    for (int part = 0; part < 4; ++part) sums[part] += term(load(x + i + part * lanes));
  }
  for (; i + lanes <= dim; i += lanes) sums[0] += term(load(x + i));
  float total = sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; i < dim; ++i) total += term(broadcast(x[i]))[0];
  return total;
}

void normalize(float* y, const float* x, const float* weight, const float* bias, int32_t dim, float eps) {
  const auto count = static_cast<float>(dim);
  const float mean = sum_of(x, dim, [](Floats value) { return value; }) / count;
  const float variance = sum_of(x, dim, [&](Floats value) { return (value - mean) * (value - mean); }) / count;
  const float scale = 1.0F / std::sqrt(variance + eps);
  map(y, x, weight, dim, [&](Floats value, Floats w) { return (value - mean) * scale * w; });
  if (bias != nullptr) map(y, y, bias, dim, [](Floats value, Floats b) { return value + b; });
}

void layer_norm(Queue queue, Tensor y, Tensor x, Tensor weight, Tensor bias, float eps) {
  const int32_t inner = x.rank == 3 ? x.dims[1] : 1;
  const int32_t dim = x.dims[x.rank - 1];
  const int64_t weight_stride = weight.rank == 2 ? weight.strides[0] : 0;
  const int64_t grain = 1 + 1024 / dim;  // starting the team takes about half a microsecond
  auto& pool = *static_cast<ThreadPool*>(queue.native);
  pool.parallel_for(int64_t{x.dims[0]} * inner, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t token = i / inner;
      const int64_t head = i % inner;
      normalize(y.as<float>() + token * y.strides[0] + head * y.strides[1],
                x.as<float>() + token * x.strides[0] + head * x.strides[1], weight.as<float>() + head * weight_stride,
                bias ? bias.as<float>() : nullptr, dim, eps);
    }
  });
}

const bool added = kernels::layer_norm.add(DeviceKind::cpu, Isa::QUERN_ISA, layer_norm);

}  // namespace
}  // namespace quern::QUERN_ISA
