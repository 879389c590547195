#include "backend/cuda/linear_f8.h"

#include "backend/cuda/packed.cuh"
#include "backend/cuda/vectors.h"

namespace quern::cuda {
namespace {

constexpr int warps = 8;
constexpr float least_scale = 1.0F / (e4m3_largest * 512.0F);

/// The largest of all threads' values, the same in all of them.
__device__ __forceinline__ float block_max(float value) {
  __shared__ float of_warps[warps];
  value = warp_max(value);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  for (const float other : of_warps) value = fmaxf(value, other);
  return value;
}

/// Eight columns become eight bytes.
__device__ __forceinline__ void store_eighth(std::byte* row, int eighth, const float (&v)[8], float factor) {
  uint32_t words[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    words[i] = e4m3_pair(v[4 * i + 2] * factor, v[4 * i] * factor) |
               e4m3_pair(v[4 * i + 3] * factor, v[4 * i + 1] * factor) << 16;
  }
  std::byte* const at = row + f8_chunk * (eighth / 8) + 16 * (eighth % 4) + 8 * (eighth / 4 % 2);
  *reinterpret_cast<uint2*>(at) = {words[0], words[1]};
}

/// A block for each token; a thread takes eight columns at a time, `kept` times, and remembers them. With none kept
/// rows have any length and alignment.
template <typename T, int kept>
__global__ void __launch_bounds__(32 * warps)
    quantize(std::byte* to, float* scales, const T* x, int64_t stride, int cols, int eighths) {
  allow_next();
  wait_for_previous();
  const T* const row = x + blockIdx.x * stride;
  const int real = cols / 8;
  Packet<T, 8> packets[kept > 0 ? kept : 1];
  float largest = 0.0F;
#pragma unroll
  for (int i = 0; i < kept; ++i) {
    const int eighth = threadIdx.x + i * 32 * warps;
    packets[i] = {};
    if (eighth < real) packets[i] = *reinterpret_cast<const Packet<T, 8>*>(row + 8 * eighth);
  }
#pragma unroll
  for (int i = 0; i < kept; ++i) {
#pragma unroll
    for (const T value : packets[i].v) largest = fmaxf(largest, fabsf(to_float(value)));
  }
  for (int column = threadIdx.x; column < cols && kept == 0; column += 32 * warps) {
    largest = fmaxf(largest, fabsf(to_float(row[column])));
  }
  const float scale = fmaxf(block_max(largest) / e4m3_largest, least_scale);
  const float factor = 1.0F / scale;
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
  std::byte* const to_row = to + blockIdx.x * int64_t{8} * eighths;
#pragma unroll
  for (int i = 0; i < kept; ++i) {
    const int eighth = threadIdx.x + i * 32 * warps;
    float values[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) values[j] = to_float(packets[i].v[j]);
    if (eighth < eighths) store_eighth(to_row, eighth, values, factor);
  }
  for (int eighth = threadIdx.x; eighth < eighths && kept == 0; eighth += 32 * warps) {
    float values[8] = {};
    if (eighth < real) load_floats<1>(values, row + 8 * eighth);
    store_eighth(to_row, eighth, values, factor);
  }
}

}  // namespace

void quantize_tokens(const Queue& queue, std::byte* to, float* scales, Tensor x) {
  const int cols = x.dims[1];
  const int eighths = f8_columns(cols) / 8;
  const int each = aligned_rows({x}) ? (eighths + 32 * warps - 1) / (32 * warps) : INT_MAX;
  const auto run = [&]<typename T>(T) {
    const auto kernel = each <= 2 ? quantize<T, 2> : each <= 8 ? quantize<T, 8> : quantize<T, 0>;
    launch(queue, kernel, static_cast<unsigned>(x.dims[0]), 32 * warps, 0, to, scales, x.as<T>(), x.strides[0], cols,
           eighths);
  };
  x.dtype == Dtype::f16 ? run(Half{}) : run(Bf16{});
}

}  // namespace quern::cuda
