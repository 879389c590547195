#include "ops/pool.h"

#include "backend/cuda/floats.h"
#include "backend/cuda/launch.h"

namespace quern::cuda {
namespace {

constexpr int threads = 128;

struct Shape {
  int dim;
  int pieces;  // blocks of each segment
  int64_t x_stride, y_stride, sums_stride;
  TokenPool kind;
};

/// A thread adds up one column of one segment.
template <typename Y, typename X>
__global__ void __launch_bounds__(threads)
    mean_pool(Y* y, float* sums, const X* x, const int* starts, const int* rows, const int* positions, Shape shape) {
  allow_next();
  wait_for_previous();
  const int64_t segment = blockIdx.x / shape.pieces;
  const int column = blockIdx.x % shape.pieces * threads + threadIdx.x;
  if (column >= shape.dim) return;
  const int begin = starts[segment];
  const int end = starts[segment + 1];
  float* const kept = sums + rows[segment] * shape.sums_stride + column;
  const TokenPool kind = shape.kind;
  float sum = positions[begin] != 0 ? *kept : kind == TokenPool::largest ? -INFINITY : 0.0F;
  for (int token = begin; token < end; ++token) {
    const float value = to_float(x[token * shape.x_stride + column]);
    const float weight = kind == TokenPool::weighted_mean ? static_cast<float>(positions[token] + 1) : 1.0F;
    sum = kind == TokenPool::largest ? fmaxf(sum, value) : sum + value * weight;
  }
  *kept = sum;
  const auto count = static_cast<float>(positions[end - 1] + 1);
  const float by = kind == TokenPool::mean            ? count
                   : kind == TokenPool::weighted_mean ? count * (count + 1.0F) / 2.0F
                   : kind == TokenPool::mean_sqrt_len ? sqrtf(count)
                                                      : 1.0F;
  y[segment * shape.y_stride + column] = from_float<Y>(sum / by);
}

void mean_pool(Queue queue, Tensor y, Tensor sums, Tensor x, const Segments& segments, TokenPool kind) {
  Shape shape{x.dims[1], (x.dims[1] + threads - 1) / threads, x.strides[0], y.strides[0], sums.strides[0], kind};
  visit_activation(y.dtype, [&]<typename Y>(Y) {
    visit_activation(x.dtype, [&]<typename X>(X) {
      launch(queue, mean_pool<Y, X>, static_cast<unsigned>(y.dims[0] * shape.pieces), threads, 0,
             reinterpret_cast<Y*>(y.data), sums.as<float>(), reinterpret_cast<const X*>(x.data),
             segments.starts.as<int32_t>(), segments.rows.as<int32_t>(), segments.positions.as<int32_t>(), shape);
    });
  });
}

const bool added = kernels::mean_pool.add(DeviceKind::cuda, mean_pool);

}  // namespace
}  // namespace quern::cuda
