#include "ops/grow_queries.h"

#include "backend/cuda/launch.h"
#include "backend/cuda/vectors.h"

namespace quern::cuda {
namespace {

constexpr int threads = 256;

/// `pieces` blocks for each token; tokens at position -1 are nobody's.
template <typename T>
__global__ void __launch_bounds__(threads)
    grow(T* q, int64_t stride, int dim, int pieces, const int32_t* positions, float beta, float period) {
  allow_next();
  const int64_t token = blockIdx.x / pieces;
  const int i = blockIdx.x % pieces * threads + threadIdx.x;
  wait_for_previous();
  const int position = positions[token];
  if (i >= dim || position < 0) return;
  const float factor = 1.0F + beta * log1pf(floorf(static_cast<float>(position) / period));
  T* const value = q + token * stride + i;
  *value = from_float<T>(to_float(*value) * factor);
}

void grow_queries(Queue queue, Tensor q, Tensor positions, float beta, float period) {
  const int dim = q.dims[1];
  const int pieces = (dim + threads - 1) / threads;
  visit_activation(q.dtype, [&]<typename T>(T) {
    launch(queue, grow<T>, static_cast<unsigned>(q.dims[0] * pieces), threads, 0, q.as<T>(), q.strides[0], dim, pieces,
           positions.as<int32_t>(), beta, period);
  });
}

const bool added = kernels::grow_queries.add(DeviceKind::cuda, grow_queries);

}  // namespace
}  // namespace quern::cuda
