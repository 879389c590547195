#include "ops/gated.h"

#include "backend/cuda/activation.cuh"
#include "backend/cuda/held.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/vectors.h"

namespace quern::cuda {
namespace {

constexpr int threads = 256;

struct Rows {
  int64_t x_stride, y_stride;
  int hidden;
  int pieces;  // blocks for each row
};

template <int width, typename T, Activation activation>
__global__ void __launch_bounds__(threads) gate(T* y, const T* gate_up, Rows rows) {
  allow_next();
  const int64_t row = blockIdx.x / rows.pieces;
  const int first = (blockIdx.x % rows.pieces * threads + threadIdx.x) * width;
  gate_up += row * rows.x_stride + first;
  wait_for_previous();
  if (first >= rows.hidden) return;
  float gates[width];
  float ups[width];
  load_floats(gates, gate_up);
  load_floats(ups, gate_up + rows.hidden);
#pragma unroll
  for (int i = 0; i < width; ++i) gates[i] = gated_value<T>(gates[i], ups[i], activation);
  store_floats(y + row * rows.y_stride + first, gates);
}

template <typename T, Activation activation>
void run(Queue queue, Tensor y, Tensor gate_up) {
  const int hidden = y.dims[1];
  const int width = hidden % vector_of<T> == 0 && aligned_rows({y, gate_up}) ? vector_of<T> : 1;
  const Rows rows{gate_up.strides[0], y.strides[0], hidden, (hidden + threads * width - 1) / (threads * width)};
  const auto kernel = width == 1 ? gate<1, T, activation> : gate<vector_of<T>, T, activation>;
  launch(queue, kernel, static_cast<unsigned>(y.dims[0] * rows.pieces), threads, 0, y.as<T>(), gate_up.as<T>(), rows);
}

void gated(Queue queue, Tensor y, Tensor gate_up, Activation activation) {
  if (const HeldGated together = take_gated(queue, gate_up)) return together(queue, y, activation);
  visit_activation(y.dtype, [&]<typename T>(T) {
    switch (activation) {
      case Activation::silu: return run<T, Activation::silu>(queue, y, gate_up);
      case Activation::gelu_tanh: return run<T, Activation::gelu_tanh>(queue, y, gate_up);
      case Activation::gelu_erf: return run<T, Activation::gelu_erf>(queue, y, gate_up);
      case Activation::clamped_swiglu: return run<T, Activation::clamped_swiglu>(queue, y, gate_up);
      case Activation::relu: return run<T, Activation::relu>(queue, y, gate_up);
    }
  });
}

const bool added = kernels::gated.add(DeviceKind::cuda, gated);

}  // namespace
}  // namespace quern::cuda
