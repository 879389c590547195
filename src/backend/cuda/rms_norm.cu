#include "ops/rms_norm.h"

#include "backend/cuda/floats.h"
#include "backend/cuda/launch.h"

namespace quern::cuda {
namespace {

constexpr int max_warps = 8;

struct Shape {
  int inner;  // vectors of each token
  int dim;
  int64_t x_token, x_vector, y_token, y_vector;  // strides in elements
};

/// One block for each vector. The sum is added in one order, whatever else runs.
template <typename Y, typename X>
__global__ void __launch_bounds__(32 * max_warps)
    normalize(Y* y, const X* x, const float* weight, Shape shape, float eps) {
  allow_next();
  const int64_t token = blockIdx.x / shape.inner;
  const int64_t vector = blockIdx.x % shape.inner;
  x += token * shape.x_token + vector * shape.x_vector;
  y += token * shape.y_token + vector * shape.y_vector;
  wait_for_previous();
  float sum = 0.0F;
  for (int i = threadIdx.x; i < shape.dim; i += blockDim.x) {
    const float value = to_float(x[i]);
    sum += value * value;
  }
  __shared__ float sums[max_warps];
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  float total = 0.0F;
  for (int warp = 0; warp < blockDim.x / 32; ++warp) total += sums[warp];
  const float scale = rsqrtf(total / static_cast<float>(shape.dim) + eps);
  for (int i = threadIdx.x; i < shape.dim; i += blockDim.x) y[i] = from_float<Y>(to_float(x[i]) * scale * weight[i]);
}

void rms_norm(Queue queue, Tensor y, Tensor x, Tensor weight, float eps) {
  const bool heads = x.rank == 3;
  Shape shape{};
  shape.inner = heads ? x.dims[1] : 1;
  shape.dim = x.dims[x.rank - 1];
  shape.x_token = x.strides[0];
  shape.x_vector = heads ? x.strides[1] : 0;
  shape.y_token = y.strides[0];
  shape.y_vector = heads ? y.strides[1] : 0;
  const auto blocks = static_cast<unsigned>(x.dims[0] * shape.inner);
  const unsigned warps = shape.dim <= 256 ? 1 : max_warps;
  visit_activation(x.dtype, [&]<typename X>(X) {
    visit_activation(y.dtype, [&]<typename Y>(Y) {
      launch(queue, normalize<Y, X>, blocks, 32 * warps, 0, y.as<Y>(), x.as<X>(), weight.as<float>(), shape, eps);
    });
  });
}

const bool added = kernels::rms_norm.add(DeviceKind::cuda, rms_norm);

}  // namespace
}  // namespace quern::cuda
