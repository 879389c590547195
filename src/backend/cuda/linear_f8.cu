#include "backend/cuda/linear_f8.h"

#include <bit>
#include <type_traits>

#include "backend/cuda/activation.cuh"
#include "backend/cuda/barriers.cuh"
#include "backend/cuda/packed.cuh"
#include "backend/cuda/vectors.h"

namespace quern::cuda {
namespace {

constexpr int threads = 256;
constexpr int most_threads = 512;
[[maybe_unused]] constexpr int most_blocks = 8;  // of a token: a cluster
constexpr int usual_kept = 2;                    // eighths of a thread
constexpr int most_kept = 8;
constexpr float least_scale = 1.0F / (e4m3_largest * 512.0F);

/// What all threads know of all warps' values.
struct OfWarps {
  float v[most_threads / 32];
};
__device__ __forceinline__ const OfWarps& of_warps(float value) {
  __shared__ OfWarps all;
  if (threadIdx.x % 32 == 0) all.v[threadIdx.x / 32] = value;
  __syncthreads();
  return all;
}

/// The largest of all threads' values, the same in all of them; `blocks` of a cluster together.
__device__ __forceinline__ float largest_of_all(float value, int blocks) {
  const OfWarps& all = of_warps(warp_max(value));
  for (int warp = 0; warp < blockDim.x / 32; ++warp) value = fmaxf(value, all.v[warp]);
#if __CUDA_ARCH__ >= 900
  if (blocks > 1) {
    __shared__ float of_blocks[most_blocks];
    if (threadIdx.x < blocks) {
      const auto mine = static_cast<unsigned>(__cvta_generic_to_shared(of_blocks + blockIdx.x % blocks));
      store_float_there(in_block(mine, threadIdx.x), value);
    }
    enter_cluster();
    join_cluster();
    for (int block = 0; block < blocks; ++block) value = fmaxf(value, of_blocks[block]);
  }
#endif
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

/// A share of a row, `kept` times eight columns of each thread from eighth `first` on; zeros beyond the last.
template <typename T, int kept>
using Share = Packet<T, 8>[kept];

/// Rows as they are.
template <typename T>
struct Rows {
  static constexpr bool has_eighths = true;
  const T* x;
  int64_t stride;

  __device__ __forceinline__ Packet<T, 8> eighth(int row, int number) const {
    return *reinterpret_cast<const Packet<T, 8>*>(x + row * stride + 8 * number);
  }
};

/// What gated() makes of rows.
template <typename T, Activation activation>
struct GatedRows {
  static constexpr bool has_eighths = true;
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

/// What a norm makes of rows, which it also writes. No eighth is known before all of them: a row is the work of one
/// block.
template <typename T>
struct NormedRows {
  static constexpr bool has_eighths = false;
  NormBefore norm;

  template <int kept>
  __device__ __forceinline__ void load(Share<T, kept>& to, int row, int first, int eighths) const {
    const float* const x = norm.x + row * norm.x_stride;
    T* const normed = static_cast<T*>(norm.normed) + row * norm.normed_stride;
    float values[kept][8];
    float weights[kept][8];
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kept; ++i) {
      const int number = first + i * blockDim.x;
      if (number < eighths) {
        load_floats(values[i], x + 8 * number);
        load_floats(weights[i], norm.weight + 8 * number);
      }
    }
#pragma unroll
    for (int i = 0; i < kept; ++i) {
      if (first + i * blockDim.x >= eighths) break;
#pragma unroll
      for (const float value : values[i]) sum = fmaf(value, value, sum);
    }
    const OfWarps& all = of_warps(warp_sum(sum));
    sum = 0.0F;
    for (int warp = 0; warp < blockDim.x / 32; ++warp) sum += all.v[warp];
    __syncthreads();  // the same memory is used again
    const float scale = rsqrtf(sum / static_cast<float>(norm.cols) + norm.eps);
#pragma unroll
    for (int i = 0; i < kept; ++i) {
      const int number = first + i * blockDim.x;
      to[i] = {};
      if (number >= eighths) continue;
#pragma unroll
      for (int j = 0; j < 8; ++j) to[i].v[j] = from_float<T>(values[i][j] * (scale * weights[i][j]));
      *reinterpret_cast<Packet<T, 8>*>(normed + 8 * number) = to[i];
    }
  }
};

template <typename T, int kept, typename Source>
__device__ __forceinline__ void load_share(Share<T, kept>& to, const Source& source, int row, int first, int eighths) {
  if constexpr (Source::has_eighths) {
#pragma unroll
    for (int i = 0; i < kept; ++i) {
      const int number = first + i * blockDim.x;
      to[i] = {};
      if (number < eighths) to[i] = source.eighth(row, number);
    }
  } else {
    source.template load<kept>(to, row, first, eighths);
  }
}

template <typename T>
__device__ __forceinline__ float largest_of(const Packet<T, 8>& packet) {
  float largest = 0.0F;
#pragma unroll
  for (const T value : packet.v) largest = fmaxf(largest, fabsf(to_float(value)));
  return largest;
}

/// A block for each token, or a cluster of `blocks`; a thread takes `kept` times eight columns and remembers them.
template <typename T, int kept, typename Source>
__global__ void __launch_bounds__(kept > usual_kept ? threads : most_threads)
    quantize(std::byte* to, float* scales, const __grid_constant__ Source source, int cols, int eighths, int blocks) {
  allow_next();
  wait_for_previous();
  const int row = blockIdx.x / blocks;
  const int first = blockIdx.x % blocks * kept * blockDim.x + threadIdx.x;
  Share<T, kept> packets;
  load_share<T, kept>(packets, source, row, first, cols / 8);
  float largest = 0.0F;
#pragma unroll
  for (int i = 0; i < kept; ++i) largest = fmaxf(largest, largest_of(packets[i]));
  const float scale = fmaxf(largest_of_all(largest, blocks) / e4m3_largest, least_scale);
  const float factor = 1.0F / scale;
  if (blockIdx.x % blocks == 0 && threadIdx.x == 0) scales[row] = scale;
  std::byte* const to_row = to + row * int64_t{8} * eighths;
#pragma unroll
  for (int i = 0; i < kept; ++i) {
    const int number = first + i * blockDim.x;
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
  const float scale = fmaxf(largest_of_all(largest, 1) / e4m3_largest, least_scale);
  const float factor = 1.0F / scale;
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
  std::byte* const to_row = to + blockIdx.x * int64_t{8} * eighths;
  for (int eighth = threadIdx.x; eighth < eighths; eighth += threads) {
    float values[8] = {};
    if (eighth < cols / 8) load_floats<1>(values, row + 8 * eighth);
    store_eighth(to_row, eighth, values, factor);
  }
}

constexpr int eighths_of_block = usual_kept * threads;
bool fits(int cols) { return f8_columns(cols) / 8 <= most_kept * threads; }

/// A long row of few tokens is shared by blocks, so that all of the GPU works.
int blocks_of_row(int tokens, int eighths) {
  constexpr int few_tokens = 256;
  if (eighths <= 2 * eighths_of_block || tokens > few_tokens || !has_clusters()) return 1;
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>((eighths + eighths_of_block - 1) / eighths_of_block)));
}

template <typename T, typename Source>
void run(const Queue& queue, std::byte* to, float* scales, const Source& source, int tokens, int cols, int blocks) {
  const int eighths = f8_columns(cols) / 8;
  const int each = (eighths + blocks - 1) / blocks;
  const int threads_of = each <= eighths_of_block || each > 2 * eighths_of_block ? threads : most_threads;
  auto kernel = quantize<T, usual_kept, Source>;
  if constexpr (Source::has_eighths) {
    if (each > usual_kept * threads_of) kernel = quantize<T, most_kept, Source>;
  }
  launch_blocks(
      queue, kernel,
      {static_cast<unsigned>(tokens * blocks), static_cast<unsigned>(threads_of), 0, static_cast<unsigned>(blocks)}, to,
      scales, source, cols, eighths, blocks);
}

}  // namespace

void quantize_tokens(const Queue& queue, std::byte* to, float* scales, Tensor x) {
  const int cols = x.dims[1];
  const bool in_eighths = aligned_rows({x}) && fits(cols);
  const auto quantize = [&]<typename T>(T) {
    if (in_eighths)
      return run<T>(queue, to, scales, Rows<T>{x.as<T>(), x.strides[0]}, x.dims[0], cols,
                    blocks_of_row(x.dims[0], cols / 8));
    launch(queue, quantize_any<T>, static_cast<unsigned>(x.dims[0]), threads, 0, to, scales, x.as<T>(), x.strides[0],
           cols, f8_columns(cols) / 8);
  };
  x.dtype == Dtype::f16 ? quantize(Half{}) : quantize(Bf16{});
}

void quantize_normed(const Queue& queue, std::byte* to, float* scales, const NormBefore& norm, Dtype activations) {
  static_assert(most_norm_columns <= 8 * 2 * eighths_of_block);
  const auto quantize = [&]<typename T>(T) {
    run<T>(queue, to, scales, NormedRows<T>{norm}, norm.tokens, norm.cols, 1);
  };
  activations == Dtype::f16 ? quantize(Half{}) : quantize(Bf16{});
}

bool quantize_gated(const Queue& queue, std::byte* to, float* scales, Tensor gate_up, Activation activation) {
  const int cols = gate_up.dims[1] / 2;
  if (!aligned_rows({gate_up}) || cols % 8 != 0 || !fits(cols)) return false;
  const auto quantize = [&]<typename T, Activation of>(T, std::integral_constant<Activation, of>) {
    run<T>(queue, to, scales, GatedRows<T, of>{gate_up.as<T>(), gate_up.strides[0], cols}, gate_up.dims[0], cols,
           blocks_of_row(gate_up.dims[0], cols / 8));
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
