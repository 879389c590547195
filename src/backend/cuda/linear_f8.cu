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

/// A block for each token; a thread takes eight columns at a time.
template <typename T, bool aligned>
__global__ void __launch_bounds__(32 * warps)
    quantize(std::byte* to, float* scales, const T* x, int64_t stride, int cols, int eighths) {
  allow_next();
  wait_for_previous();
  const T* const row = x + blockIdx.x * stride;
  float largest = 0.0F;
  for (int eighth = threadIdx.x; eighth < cols / 8; eighth += blockDim.x) {
    float values[8];
    load_floats<aligned ? 8 : 1>(values, row + 8 * eighth);
#pragma unroll
    for (const float value : values) largest = fmaxf(largest, fabsf(value));
  }
  const float scale = fmaxf(block_max(largest) / e4m3_largest, least_scale);
  const float factor = 1.0F / scale;
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
  for (int eighth = threadIdx.x; eighth < eighths; eighth += blockDim.x) {
    float values[8] = {};
    if (eighth < cols / 8) load_floats<aligned ? 8 : 1>(values, row + 8 * eighth);
    uint32_t words[2];
#pragma unroll
    for (int word = 0; word < 2; ++word) {
      const float* const v = values + 4 * word;
      words[word] = e4m3_pair(v[2] * factor, v[0] * factor) | e4m3_pair(v[3] * factor, v[1] * factor) << 16;
    }
    const int64_t at =
        blockIdx.x * int64_t{8} * eighths + f8_chunk * (eighth / 8) + 16 * (eighth % 4) + 8 * (eighth / 4 % 2);
    *reinterpret_cast<uint2*>(to + at) = {words[0], words[1]};
  }
}

}  // namespace

void quantize_tokens(const Queue& queue, std::byte* to, float* scales, Tensor x) {
  const int cols = x.dims[1];
  const auto run = [&]<typename T>(T) {
    launch(queue, aligned_rows({x}) ? quantize<T, true> : quantize<T, false>, static_cast<unsigned>(x.dims[0]),
           32 * warps, 0, to, scales, x.as<T>(), x.strides[0], cols, f8_columns(cols) / 8);
  };
  x.dtype == Dtype::f16 ? run(Half{}) : run(Bf16{});
}

}  // namespace quern::cuda
