#include "ops/modulate.h"

#include "backend/cuda/activation.cuh"
#include "backend/cuda/floats.h"
#include "backend/cuda/launch.h"

namespace quern::cuda {
namespace {

constexpr int threads = 256;

template <typename T>
__global__ void __launch_bounds__(threads)
    multiply(T* x, const T* gate, int64_t x_stride, int64_t gate_stride, int columns, Modulation f) {
  allow_next();
  wait_for_previous();
  const int column = static_cast<int>(blockIdx.y) * threads + static_cast<int>(threadIdx.x);
  if (column >= columns) return;
  T* const value = x + blockIdx.x * x_stride + column;
  const float g = to_float(gate[blockIdx.x * gate_stride + column]);
  float product = to_float(*value);
  switch (f) {
    case Modulation::identity: product *= g; break;
    case Modulation::sigmoid: product = times_sigmoid<T>(product, g); break;
    case Modulation::silu: product *= times_sigmoid<T>(g, g); break;
  }
  *value = from_float<T>(product);
}

void modulate(Queue queue, Tensor x, Tensor gate, Modulation f) {
  const dim3 grid(static_cast<unsigned>(x.dims[0]), static_cast<unsigned>((x.dims[1] + threads - 1) / threads));
  visit_activation(x.dtype, [&]<typename T>(T) {
    launch(queue, multiply<T>, grid, threads, 0, x.as<T>(), gate.as<T>(), x.strides[0], gate.strides[0], x.dims[1], f);
  });
}

const bool added = kernels::modulate.add(DeviceKind::cuda, modulate);

}  // namespace
}  // namespace quern::cuda
