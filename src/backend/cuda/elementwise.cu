#include "ops/elementwise.h"

#include "backend/cuda/launch.h"
#include "backend/cuda/vectors.h"

namespace quern::cuda {
namespace {

constexpr int threads = 256;

struct Scale {
  float factor;
  __device__ float operator()(float x, float /*y*/) const { return x * factor; }
};
struct ScaleBy {
  const float* factor;
  __device__ float operator()(float x, float /*y*/) const { return x * *factor; }
};
struct Softcap {
  float cap;
  __device__ float operator()(float x, float /*y*/) const { return cap * tanhf(x / cap); }
};
struct Sum {
  float factor;
  __device__ float operator()(float x, float y) const { return fmaf(factor, y, x); }
};

/// `pieces` blocks for each row; y is null for functions of x alone.
template <int width, typename Function>
__global__ void __launch_bounds__(threads)
    map(float* x, int64_t x_stride, const float* y, int64_t y_stride, int dim, int pieces, Function function) {
  allow_next();
  const int64_t row = blockIdx.x / pieces;
  const int first = (blockIdx.x % pieces * threads + threadIdx.x) * width;
  x += row * x_stride + first;
  y += row * y_stride + first;
  wait_for_previous();
  if (first >= dim) return;
  float values[width];
  float others[width] = {};
  load_floats(values, x);
  if constexpr (std::is_same_v<Function, Sum>) load_floats(others, y);
#pragma unroll
  for (int i = 0; i < width; ++i) values[i] = function(values[i], others[i]);
  store_floats(x, values);
}

template <typename Function>
void apply(Queue queue, Tensor x, Tensor y, Function function) {
  const int dim = x.dims[1];
  const int width = dim % 4 == 0 && aligned_rows({x, y}) ? 4 : 1;
  const int pieces = (dim + threads * width - 1) / (threads * width);
  launch(queue, width == 4 ? map<4, Function> : map<1, Function>, static_cast<unsigned>(x.dims[0] * pieces), threads, 0,
         x.as<float>(), x.strides[0], y.as<float>(), y.strides[0], dim, pieces, function);
}

/// `pieces` blocks for each row.
template <typename T>
__global__ void __launch_bounds__(threads)
    gate(T* x, int64_t x_stride, const float* gates, int64_t gate_stride, int dim, int pieces) {
  allow_next();
  const int64_t row = blockIdx.x / pieces;
  const int column = blockIdx.x % pieces * threads + threadIdx.x;
  wait_for_previous();
  if (column >= dim) return;
  const float factor = 1.0F / (1.0F + expf(-gates[row * gate_stride]));
  x[row * x_stride + column] = from_float<T>(to_float(x[row * x_stride + column]) * factor);
}

void gate_rows(Queue queue, Tensor x, Tensor gates) {
  const int pieces = (x.dims[1] + threads - 1) / threads;
  visit_activation(x.dtype, [&]<typename T>(T) {
    launch(queue, gate<T>, static_cast<unsigned>(x.dims[0] * pieces), threads, 0, x.as<T>(), x.strides[0],
           gates.as<float>(), gates.strides[0], x.dims[1], pieces);
  });
}

struct Heads {
  int64_t y_strides[2];
  int64_t x_strides[2];
  int64_t values;
  int heads;
  int dim;
};

/// A thread for each value.
template <typename T>
__global__ void __launch_bounds__(threads) copy(T* y, const T* x, Heads shape) {
  allow_next();
  const int64_t item = int64_t{blockIdx.x} * threads + threadIdx.x;
  wait_for_previous();
  if (item >= shape.values) return;
  const int64_t i = item % shape.dim;
  const int64_t head = item / shape.dim % shape.heads;
  const int64_t token = item / shape.dim / shape.heads;
  y[token * shape.y_strides[0] + head * shape.y_strides[1] + i] =
      x[token * shape.x_strides[0] + head * shape.x_strides[1] + i];
}

void copy_heads(Queue queue, Tensor y, Tensor x) {
  const Heads shape{{y.strides[0], y.strides[1]}, {x.strides[0], x.strides[1]}, x.elements(), x.dims[1], x.dims[2]};
  visit_activation(x.dtype, [&]<typename T>(T) {
    launch(queue, copy<T>, static_cast<unsigned>((shape.values + threads - 1) / threads), threads, 0, y.as<T>(),
           x.as<T>(), shape);
  });
}

void add(Queue queue, Tensor x, Tensor y, float factor) { apply(queue, x, y, Sum{factor}); }
void scale(Queue queue, Tensor x, float factor) { apply(queue, x, x, Scale{factor}); }
void scale_by(Queue queue, Tensor x, Tensor factor) { apply(queue, x, x, ScaleBy{factor.as<float>()}); }
void softcap(Queue queue, Tensor x, float cap) { apply(queue, x, x, Softcap{cap}); }

template <typename Y>
__global__ void __launch_bounds__(threads)
    copy_as(Y* y, int64_t y_stride, const float* x, int64_t x_stride, int dim, int pieces) {
  allow_next();
  const int64_t row = blockIdx.x / pieces;
  const int i = blockIdx.x % pieces * threads + threadIdx.x;
  wait_for_previous();
  if (i < dim) y[row * y_stride + i] = from_float<Y>(x[row * x_stride + i]);
}

void convert(Queue queue, Tensor y, Tensor x) {
  const int dim = x.dims[1];
  const int pieces = (dim + threads - 1) / threads;
  visit_activation(y.dtype, [&]<typename Y>(Y) {
    launch(queue, copy_as<Y>, static_cast<unsigned>(x.dims[0] * pieces), threads, 0, y.as<Y>(), y.strides[0],
           x.as<float>(), x.strides[0], dim, pieces);
  });
}

const bool add_added = kernels::add.add(DeviceKind::cuda, add);
const bool convert_added = kernels::convert.add(DeviceKind::cuda, convert);
const bool scale_added = kernels::scale.add(DeviceKind::cuda, scale);
const bool scale_by_added = kernels::scale_by.add(DeviceKind::cuda, scale_by);
const bool softcap_added = kernels::softcap.add(DeviceKind::cuda, softcap);
const bool gate_added = kernels::gate_rows.add(DeviceKind::cuda, gate_rows);
const bool copy_added = kernels::copy_heads.add(DeviceKind::cuda, copy_heads);

}  // namespace
}  // namespace quern::cuda
