// The product in floats: the reference on the GPU, and the way of formats of codes (formats/codes.h) and of floats
// whose type is not that of the activations. A result depends on its own token only.
#include "backend/cuda/floats.h"
#include "backend/cuda/linear_dequantize.h"
#include "backend/cuda/packed.cuh"

namespace quern::cuda {
namespace {

constexpr int warps = 8;
constexpr int tile = 4;  // tokens

struct Shape {
  int32_t rows;
  int32_t cols;
  int32_t tokens;
  int64_t x_stride;
  int64_t y_stride;
  bool accumulate;
};

template <typename Y>
__device__ __forceinline__ void put(Y* at, float sum, bool accumulate) {
  *at = from_float<Y>(accumulate ? to_float(*at) + sum : sum);
}

/// One warp for a row and some tokens; lanes take eight columns in turn.
template <typename Format, typename X, typename Y>
__global__ void __launch_bounds__(32 * warps)
    multiply_rows(Y* y, const X* x, const std::byte* data, RowFactors factors, Shape shape) {
  allow_next();
  wait_for_previous();
  const int lane = threadIdx.x % 32;
  const int row = blockIdx.x * warps + threadIdx.x / 32;
  if (row >= shape.rows) return;
  const int first = blockIdx.y * tile;
  float sums[tile] = {};
  for (int eighth = lane; eighth < shape.cols / 8; eighth += 32) {
    const Eight w = decode_packed<Format>(data, shape.cols, row, eighth);
#pragma unroll
    for (int t = 0; t < tile; ++t) {
      const X* const from = x + min(first + t, shape.tokens - 1) * shape.x_stride + 8 * eighth;
#pragma unroll
      for (int i = 0; i < 8; ++i) sums[t] = fmaf(w.v[i], to_float(from[i]), sums[t]);
    }
  }
#pragma unroll
  for (int t = 0; t < tile; ++t) {
    float sum = warp_sum(sums[t]);
    if (factors.scale != nullptr) sum *= factors.scale[row];
    if (factors.bias != nullptr) sum += factors.bias[row];
    if (lane == 0 && first + t < shape.tokens) put(y + (first + t) * shape.y_stride + row, sum, shape.accumulate);
  }
}

}  // namespace

void plain_linear(const Queue& queue, Tensor y, Tensor x, const Weight& weight, RowFactors factors, bool accumulate) {
  const Shape shape{weight.rows, weight.cols, x.dims[0], x.strides[0], y.strides[0], accumulate};
  const dim3 grid(static_cast<unsigned>((weight.rows + warps - 1) / warps),
                  static_cast<unsigned>((x.dims[0] + tile - 1) / tile));
  visit_activation(x.dtype, [&]<typename X>(X) {
    visit_format(weight.format, [&]<typename Format>(Format) {
      if constexpr (is_float<Format> || is_coded<Format> || std::is_same_v<X, float>) {
        if (y.dtype == Dtype::f32) {
          launch(queue, multiply_rows<Format, X, float>, grid, 32 * warps, 0, y.as<float>(), x.as<X>(), weight.data,
                 factors, shape);
        } else {
          launch(queue, multiply_rows<Format, X, X>, grid, 32 * warps, 0, y.as<X>(), x.as<X>(), weight.data, factors,
                 shape);
        }
      } else {
        CHECK(false);  // other quantized weights of half activations are linear_skinny.h's
      }
    });
  });
}

}  // namespace quern::cuda
