#include "ops/rms_norm.h"

#include "backend/cuda/held.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/vectors.h"

namespace quern::cuda {
namespace {

constexpr int max_threads = 1024;
/// 16-byte pieces of a vector that a thread holds: 16 values.
template <typename X>
constexpr int kept = 16 / vector_of<X>;

struct Shape {
  int64_t count;  // vectors
  int inner;      // of each token
  int dim;
  float eps;
  int64_t x_token, x_vector, y_token, y_vector;  // strides in elements
};

/// Sum over the block, added in one order, whatever else runs; the same in all threads.
__device__ __forceinline__ float block_sum(float x) {
  __shared__ float sums[max_threads / 32];
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
  __syncthreads();
  float total = 0.0F;
  for (int warp = 0; warp < blockDim.x / 32; ++warp) total += sums[warp];
  return total;
}

/// Whole 16-byte pieces, read once: a vector is the work of a block, or of a warp where it is short.
template <bool of_warp, typename Y, typename X>
__global__ void __launch_bounds__(max_threads) normalize_pieces(Y* y, const X* x, const float* weight, Shape shape) {
  allow_next();
  constexpr int width = vector_of<X>;
  const int team = of_warp ? 32 : blockDim.x;
  const int64_t vector = of_warp ? int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32 : blockIdx.x;
  const int first = (of_warp ? threadIdx.x % 32 : threadIdx.x) * width;
  float weights[kept<X>][width];
#pragma unroll
  for (int j = 0; j < kept<X>; ++j) {
    if (first + j * team * width < shape.dim) load_floats(weights[j], weight + first + j * team * width);
  }
  wait_for_previous();
  if (vector >= shape.count) return;
  const int64_t token = vector / shape.inner;
  x += token * shape.x_token + vector % shape.inner * shape.x_vector + first;
  y += token * shape.y_token + vector % shape.inner * shape.y_vector + first;
  float values[kept<X>][width];
  float sum = 0.0F;
#pragma unroll
  for (int j = 0; j < kept<X>; ++j) {
    if (first + j * team * width < shape.dim) load_floats(values[j], x + j * team * width);
  }
#pragma unroll
  for (int j = 0; j < kept<X>; ++j) {
    if (first + j * team * width >= shape.dim) break;
#pragma unroll
    for (int i = 0; i < width; ++i) sum = fmaf(values[j][i], values[j][i], sum);
  }
  const float total = of_warp ? warp_sum(sum) : block_sum(sum);
  const float scale = rsqrtf(total / static_cast<float>(shape.dim) + shape.eps);
#pragma unroll
  for (int j = 0; j < kept<X>; ++j) {
    if (first + j * team * width >= shape.dim) break;
#pragma unroll
    for (int i = 0; i < width; ++i) values[j][i] *= scale * weights[j][i];
    store_floats(y + j * team * width, values[j]);
  }
}

/// Any length and alignment.
template <typename Y, typename X>
__global__ void __launch_bounds__(max_threads) normalize(Y* y, const X* x, const float* weight, Shape shape) {
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
  const float scale = rsqrtf(block_sum(sum) / static_cast<float>(shape.dim) + shape.eps);
  for (int i = threadIdx.x; i < shape.dim; i += blockDim.x) y[i] = from_float<Y>(to_float(x[i]) * scale * weight[i]);
}

template <typename Y, typename X>
void run(Queue queue, Tensor y, Tensor x, Tensor weight, const Shape& shape) {
  constexpr int width = vector_of<X>;
  constexpr int warps = 4;
  const auto arguments = [&](auto kernel, int64_t blocks, int threads) {
    launch(queue, kernel, static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0, y.as<Y>(), x.as<X>(),
           weight.as<float>(), shape);
  };
  const int pieces = shape.dim / width;
  const bool whole = shape.dim % width == 0 && aligned_rows({x, weight}) && aligned_rows({y}, width * sizeof(Y));
  if (!whole || pieces > kept<X> * max_threads) {
    return arguments(normalize<Y, X>, shape.count, shape.dim <= 256 ? 32 : 256);
  }
  if (pieces <= 64) return arguments(normalize_pieces<true, Y, X>, (shape.count + warps - 1) / warps, 32 * warps);
  const int threads = ((pieces + kept<X> - 1) / kept<X> + 31) / 32 * 32;
  arguments(normalize_pieces<false, Y, X>, shape.count, threads < max_threads ? threads : max_threads);
}

void launch_norm(Queue queue, Tensor y, Tensor x, Tensor weight, float eps) {
  const bool heads = x.rank == 3;
  Shape shape{};
  shape.inner = heads ? x.dims[1] : 1;
  shape.count = int64_t{x.dims[0]} * shape.inner;
  shape.dim = x.dims[x.rank - 1];
  shape.eps = eps;
  shape.x_token = x.strides[0];
  shape.x_vector = heads ? x.strides[1] : 0;
  shape.y_token = y.strides[0];
  shape.y_vector = heads ? y.strides[1] : 0;
  visit_activation(x.dtype, [&]<typename X>(X) {
    if (y.dtype == x.dtype) return run<X, X>(queue, y, x, weight, shape);
    if constexpr (std::is_same_v<X, float>) {
      visit_activation(y.dtype, [&]<typename Y>(Y) { run<Y, float>(queue, y, x, weight, shape); });
    } else {
      CHECK(false);
    }
  });
}

/// Whether the product that comes next could begin with this.
bool may_wait(const Queue& queue, Tensor y, Tensor x, Tensor weight) {
  return !queue.batch_invariant && x.rank == 2 && x.dtype == Dtype::f32 && y.dtype != Dtype::f32 &&
         x.dims[1] % 8 == 0 && x.dims[1] <= most_norm_columns && aligned_rows({y, x, weight});
}

void rms_norm(Queue queue, Tensor y, Tensor x, Tensor weight, float eps) {
  if (!may_wait(queue, y, x, weight)) return launch_norm(queue, y, x, weight, eps);
  hold(queue,
       {.result = y.data,
        .launch = [=](const Queue& later) { launch_norm(later, y, x, weight, eps); },
        .norm = {x.as<float>(), weight.as<float>(), y.data, eps, x.dims[0], x.dims[1], x.strides[0], y.strides[0]}});
}

const bool added = kernels::rms_norm.add(DeviceKind::cuda, rms_norm);

}  // namespace
}  // namespace quern::cuda
