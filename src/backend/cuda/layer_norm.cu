#include "ops/layer_norm.h"

#include "backend/cuda/launch.h"
#include "backend/cuda/vectors.h"

namespace quern::cuda {
namespace {

constexpr int max_threads = 256;

struct Shape {
  int inner;  // vectors of each token
  int dim;
  float eps;
  int64_t x_token, x_vector, y_token, y_vector;  // strides in elements
  int64_t weight_vector;
};

/// Sum over the block, added in one order, whatever else runs; the same in all threads.
__device__ __forceinline__ float block_sum(float x) {
  __shared__ float sums[max_threads / 32];
  x = warp_sum(x);
  __syncthreads();  // the sum before this one was read by all
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
  __syncthreads();
  float total = 0.0F;
  for (int warp = 0; warp < blockDim.x / 32; ++warp) total += sums[warp];
  return total;
}

/// A block for each vector, of any length and alignment.
template <typename Y, typename X>
__global__ void __launch_bounds__(max_threads)
    normalize(Y* y, const X* x, const float* weight, const float* bias, Shape shape) {
  allow_next();
  const int64_t token = blockIdx.x / shape.inner;
  const int64_t vector = blockIdx.x % shape.inner;
  x += token * shape.x_token + vector * shape.x_vector;
  y += token * shape.y_token + vector * shape.y_vector;
  weight += vector * shape.weight_vector;
  wait_for_previous();
  float sum = 0.0F;
  for (int i = threadIdx.x; i < shape.dim; i += blockDim.x) sum += to_float(x[i]);
  const float mean = block_sum(sum) / static_cast<float>(shape.dim);
  float squares = 0.0F;
  for (int i = threadIdx.x; i < shape.dim; i += blockDim.x) {
    const float value = to_float(x[i]) - mean;
    squares = fmaf(value, value, squares);
  }
  const float scale = rsqrtf(block_sum(squares) / static_cast<float>(shape.dim) + shape.eps);
  for (int i = threadIdx.x; i < shape.dim; i += blockDim.x) {
    const float shift = bias != nullptr ? bias[i] : 0.0F;
    y[i] = from_float<Y>((to_float(x[i]) - mean) * scale * weight[i] + shift);
  }
}

void layer_norm(Queue queue, Tensor y, Tensor x, Tensor weight, Tensor bias, float eps) {
  const bool heads = x.rank == 3;
  Shape shape{};
  shape.inner = heads ? x.dims[1] : 1;
  shape.dim = x.dims[x.rank - 1];
  shape.eps = eps;
  shape.x_token = x.strides[0];
  shape.x_vector = heads ? x.strides[1] : 0;
  shape.y_token = y.strides[0];
  shape.y_vector = heads ? y.strides[1] : 0;
  shape.weight_vector = weight.rank == 2 ? weight.strides[0] : 0;
  const auto blocks = static_cast<unsigned>(int64_t{x.dims[0]} * shape.inner);
  const unsigned threads = shape.dim <= 128 ? 32 : max_threads;
  visit_activation(x.dtype, [&]<typename X>(X) {
    visit_activation(y.dtype, [&]<typename Y>(Y) {
      launch(queue, normalize<Y, X>, blocks, threads, 0, y.as<Y>(), x.as<X>(), weight.as<float>(),
             bias ? bias.as<float>() : nullptr, shape);
    });
  });
}

const bool added = kernels::layer_norm.add(DeviceKind::cuda, layer_norm);

}  // namespace
}  // namespace quern::cuda
