#include "ops/activate.h"

#include "backend/cuda/activation.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/vectors.h"

namespace quern::cuda {
namespace {

constexpr int threads = 256;

/// `pieces` blocks for each row.
template <int width, typename T, Activation activation>
__global__ void __launch_bounds__(threads) apply(T* x, int64_t stride, int dim, int pieces) {
  allow_next();
  const int first = (blockIdx.x % pieces * threads + threadIdx.x) * width;
  x += static_cast<int64_t>(blockIdx.x / pieces) * stride + first;
  wait_for_previous();
  if (first >= dim) return;
  float values[width];
  load_floats(values, x);
#pragma unroll
  for (int i = 0; i < width; ++i) values[i] = activate<T>(values[i], activation);
  store_floats(x, values);
}

template <typename T, Activation activation>
void run(Queue queue, Tensor x) {
  const int dim = x.dims[1];
  const int width = dim % vector_of<T> == 0 && aligned_rows({x}) ? vector_of<T> : 1;
  const int pieces = (dim + threads * width - 1) / (threads * width);
  launch(queue, width == 1 ? apply<1, T, activation> : apply<vector_of<T>, T, activation>,
         static_cast<unsigned>(x.dims[0] * pieces), threads, 0, x.as<T>(), x.strides[0], dim, pieces);
}

void activate_all(Queue queue, Tensor x, Activation activation) {
  visit_activation(x.dtype, [&]<typename T>(T) {
    switch (activation) {
      case Activation::silu: return run<T, Activation::silu>(queue, x);
      case Activation::gelu_tanh: return run<T, Activation::gelu_tanh>(queue, x);
      case Activation::gelu_erf: return run<T, Activation::gelu_erf>(queue, x);
      case Activation::relu: return run<T, Activation::relu>(queue, x);
      case Activation::clamped_swiglu: CHECK(false);
    }
  });
}

const bool added = kernels::activate.add(DeviceKind::cuda, activate_all);

}  // namespace
}  // namespace quern::cuda
