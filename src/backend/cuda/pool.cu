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
  float sum = positions[begin] == 0 ? 0.0F : *kept;
  for (int token = begin; token < end; ++token) sum += to_float(x[token * shape.x_stride + column]);
  *kept = sum;
  y[segment * shape.y_stride + column] = from_float<Y>(sum / static_cast<float>(positions[end - 1] + 1));
}

void mean_pool(Queue queue, Tensor y, Tensor sums, Tensor x, const Segments& segments) {
  Shape shape{x.dims[1], (x.dims[1] + threads - 1) / threads, x.strides[0], y.strides[0], sums.strides[0]};
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
