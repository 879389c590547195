// Several neighbouring values of a type as floats: one load or store of up to 16 bytes.
#pragma once

#include <climits>
#include <initializer_list>

#include "backend/cuda/floats.h"
#include "tensor/tensor.h"

namespace quern::cuda {

/// Values of T in 16 bytes.
template <typename T>
inline constexpr int vector_of = 16 / static_cast<int>(sizeof(T));

/// Whether every row of the tensors begins on a multiple of 16 bytes (of `bytes`).
inline bool aligned_rows(std::initializer_list<Tensor> tensors, int64_t bytes = 16) {
  for (const Tensor& tensor : tensors) {
    if (reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uintptr_t>(bytes) != 0) return false;
    for (int axis = 0; axis + 1 < tensor.rank; ++axis) {
      if (tensor.dims[axis] > 1 && tensor.strides[axis] * dtype_bytes(tensor.dtype) % bytes != 0) return false;
    }
  }
  return true;
}

#ifdef __CUDACC__
template <typename T, int count>
struct alignas(sizeof(T) * count) Packet {
  T v[count];
};

/// How many of `count` values are loaded together.
template <int count, typename T>
inline constexpr int vector_part = count < vector_of<T> ? count : vector_of<T>;

/// `count` values; `at_once` of them, at most 16 bytes, begin at multiples of their size.
template <int at_once = INT_MAX, int count, typename T>
__device__ __forceinline__ void load_floats(float (&to)[count], const T* from) {
  constexpr int part = at_once < vector_part<count, T> ? at_once : vector_part<count, T>;
#pragma unroll
  for (int i = 0; i < count; i += part) {
    const auto packet = *reinterpret_cast<const Packet<T, part>*>(from + i);
#pragma unroll
    for (int j = 0; j < part; ++j) to[i + j] = to_float(packet.v[j]);
  }
}

template <int at_once = INT_MAX, int count, typename T>
__device__ __forceinline__ void store_floats(T* to, const float (&from)[count]) {
  constexpr int part = at_once < vector_part<count, T> ? at_once : vector_part<count, T>;
#pragma unroll
  for (int i = 0; i < count; i += part) {
    Packet<T, part> packet;
#pragma unroll
    for (int j = 0; j < part; ++j) packet.v[j] = from_float<T>(from[i + j]);
    *reinterpret_cast<Packet<T, part>*>(to + i) = packet;
  }
}
#endif

}  // namespace quern::cuda
