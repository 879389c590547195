#include "backend/cuda/linear_f8.h"

#include <type_traits>

#include "backend/cuda/activation.cuh"
#include "backend/cuda/packed.cuh"
#include "backend/cuda/vectors.h"

namespace quern::cuda {
namespace {

constexpr int warps = 8;
constexpr int threads = 32 * warps;
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

/// Rows as they are.
template <typename T>
struct Rows {
  const T* x;
  int64_t stride;

  __device__ __forceinline__ Packet<T, 8> eighth(int row, int number) const {
    return *reinterpret_cast<const Packet<T, 8>*>(x + row * stride + 8 * number);
  }
};

/// What gated() makes of rows.
template <typename T, Activation activation>
struct GatedRows {
  const T* gate_up;
  int64_t stride;
  int hidden;

  __device__ __forceinline__ Packet<T, 8> eighth(int row, int number) const {
    const T* const gate = gate_up + row * stride + 8 * number;
    float gates[8];
    float ups[8];
    load_floats(gates, gate);
    load_floats(ups, gate + hidden);
    Packet<T, 8> made;
#pragma unroll
    for (int i = 0; i < 8; ++i) made.v[i] = from_float<T>(gated_value<T>(gates[i], ups[i], activation));
    return made;
  }
};

template <typename T>
__device__ __forceinline__ float largest_of(const Packet<T, 8>& packet) {
  float largest = 0.0F;
#pragma unroll
  for (const T value : packet.v) largest = fmaxf(largest, fabsf(to_float(value)));
  return largest;
}

/// A block for each token; a thread takes eight columns at a time, `kept` times, and remembers them.
template <typename T, int kept, typename Source>
__global__ void __launch_bounds__(threads)
    quantize(std::byte* to, float* scales, Source source, int cols, int eighths) {
  allow_next();
  wait_for_previous();
  Packet<T, 8> packets[kept];
  float largest = 0.0F;
#pragma unroll
  for (int i = 0; i < kept; ++i) {
    const int number = threadIdx.x + i * threads;
    packets[i] = {};
    if (number < cols / 8) packets[i] = source.eighth(blockIdx.x, number);
  }
#pragma unroll
  for (int i = 0; i < kept; ++i) largest = fmaxf(largest, largest_of(packets[i]));
  const float scale = fmaxf(block_max(largest) / e4m3_largest, least_scale);
  const float factor = 1.0F / scale;
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
  std::byte* const to_row = to + blockIdx.x * int64_t{8} * eighths;
#pragma unroll
  for (int i = 0; i < kept; ++i) {
    const int number = threadIdx.x + i * threads;
    float values[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) values[j] = to_float(packets[i].v[j]);
    if (number < eighths) store_eighth(to_row, number, values, factor);
  }
}

/// The same of rows of any length and alignment, which are read twice.
template <typename T>
__global__ void __launch_bounds__(threads)
    quantize_any(std::byte* to, float* scales, const T* x, int64_t stride, int cols, int eighths) {
  allow_next();
  wait_for_previous();
  const T* const row = x + blockIdx.x * stride;
  float largest = 0.0F;
  for (int column = threadIdx.x; column < cols; column += threads) {
    largest = fmaxf(largest, fabsf(to_float(row[column])));
  }
  const float scale = fmaxf(block_max(largest) / e4m3_largest, least_scale);
  const float factor = 1.0F / scale;
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
  std::byte* const to_row = to + blockIdx.x * int64_t{8} * eighths;
  for (int eighth = threadIdx.x; eighth < eighths; eighth += threads) {
    float values[8] = {};
    if (eighth < cols / 8) load_floats<1>(values, row + 8 * eighth);
    store_eighth(to_row, eighth, values, factor);
  }
}

/// Eighths of a row for each thread.
int each_of(int cols) { return (f8_columns(cols) / 8 + threads - 1) / threads; }
constexpr int most_kept = 8;

template <typename T, typename Source>
void run(const Queue& queue, std::byte* to, float* scales, const Source& source, int tokens, int cols) {
  const auto kernel = each_of(cols) <= 2 ? quantize<T, 2, Source> : quantize<T, most_kept, Source>;
  launch(queue, kernel, static_cast<unsigned>(tokens), threads, 0, to, scales, source, cols, f8_columns(cols) / 8);
}

}  // namespace

void quantize_tokens(const Queue& queue, std::byte* to, float* scales, Tensor x) {
  const int cols = x.dims[1];
  const bool in_eighths = aligned_rows({x}) && each_of(cols) <= most_kept;
  const auto quantize = [&]<typename T>(T) {
    if (in_eighths) return run<T>(queue, to, scales, Rows<T>{x.as<T>(), x.strides[0]}, x.dims[0], cols);
    launch(queue, quantize_any<T>, static_cast<unsigned>(x.dims[0]), threads, 0, to, scales, x.as<T>(), x.strides[0],
           cols, f8_columns(cols) / 8);
  };
  x.dtype == Dtype::f16 ? quantize(Half{}) : quantize(Bf16{});
}

bool quantize_gated(const Queue& queue, std::byte* to, float* scales, Tensor gate_up, Activation activation) {
  const int cols = gate_up.dims[1] / 2;
  if (!aligned_rows({gate_up}) || cols % 8 != 0 || each_of(cols) > most_kept) return false;
  const auto quantize = [&]<typename T, Activation of>(T, std::integral_constant<Activation, of>) {
    run<T>(queue, to, scales, GatedRows<T, of>{gate_up.as<T>(), gate_up.strides[0], cols}, gate_up.dims[0], cols);
  };
  const auto with = [&]<Activation of>(std::integral_constant<Activation, of> what) {
    gate_up.dtype == Dtype::f16 ? quantize(Half{}, what) : quantize(Bf16{}, what);
  };
  switch (activation) {
    case Activation::silu: with(std::integral_constant<Activation, Activation::silu>()); break;
    case Activation::gelu_tanh: with(std::integral_constant<Activation, Activation::gelu_tanh>()); break;
    case Activation::gelu_erf: with(std::integral_constant<Activation, Activation::gelu_erf>()); break;
    case Activation::clamped_swiglu: with(std::integral_constant<Activation, Activation::clamped_swiglu>()); break;
    case Activation::relu: with(std::integral_constant<Activation, Activation::relu>()); break;
  }
  return true;
}

}  // namespace quern::cuda
