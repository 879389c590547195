// The types of activations in kernels, and eight of them at a time as floats.
#pragma once

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "base/check.h"
#include "formats/half.h"
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

/// An 8-bit float (e4m3).
struct E4m3 {
  uint8_t bits;
};

/// Calls visit(T{}) with the C++ type of cached keys and values.
template <typename Visit>
void visit_cached(Dtype dtype, Visit&& visit) {
  if (dtype == Dtype::f8) return visit(E4m3{});
  visit_activation(dtype, visit);
}

#ifdef __CUDACC__
/// Two 8-bit floats, the first in the low byte.
__device__ __forceinline__ uint32_t e4m3_pair(float low, float high) {
#if __CUDA_ARCH__ >= 890
  uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return static_cast<uint32_t>(f32_to_e4m3(low)) | static_cast<uint32_t>(f32_to_e4m3(high)) << 8;
#endif
}
/// The two in the low half of a word as a pair of Half.
__device__ __forceinline__ uint32_t halves_of_e4m3(uint32_t pair) {
#if __CUDA_ARCH__ >= 890
  uint32_t both;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(both) : "h"(static_cast<uint16_t>(pair)));
  return both;
#else
  const __half2 both =
      __floats2half2_rn(e4m3_to_f32(static_cast<uint8_t>(pair)), e4m3_to_f32(static_cast<uint8_t>(pair >> 8)));
  return *reinterpret_cast<const uint32_t*>(&both);
#endif
}

__device__ __forceinline__ float to_float(E4m3 x) {
  const uint32_t both = halves_of_e4m3(x.bits);
  return __half2float(__ushort_as_half(static_cast<unsigned short>(both & 0xFFFFU)));
}
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

template <>
__device__ __forceinline__ E4m3 from_float<E4m3>(float x) {
  return {static_cast<uint8_t>(e4m3_pair(x, 0.0F))};
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
