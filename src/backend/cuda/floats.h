// The types of activations in kernels, and eight of them at a time as floats.
#pragma once

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "base/check.h"
#include "tensor/dtype.h"

namespace quern::cuda {

using Half = __half;
using Bf16 = __nv_bfloat16;

/// Calls visit(T{}) with the C++ type of an activation: float, Half or Bf16.
template <typename Visit>
void visit_activation(Dtype dtype, Visit&& visit) {
  switch (dtype) {
    case Dtype::f32: return visit(float{});
    case Dtype::f16: return visit(Half{});
    case Dtype::bf16: return visit(Bf16{});
    default: CHECK(false);
  }
}

#ifdef __CUDACC__
__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(Half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(Bf16 x) { return __bfloat162float(x); }

template <typename T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ Half from_float<Half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __forceinline__ Bf16 from_float<Bf16>(float x) {
  return __float2bfloat16_rn(x);
}

/// Sum over the 32 lanes, the same in all of them.
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xFFFFFFFFU, x, step);
  return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, step));
  return x;
}
#endif

}  // namespace quern::cuda
