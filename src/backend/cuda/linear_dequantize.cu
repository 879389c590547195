#include "backend/cuda/linear_dequantize.h"

#include <algorithm>

#include "backend/cuda/linear_unpack.cuh"

namespace quern::cuda {
namespace {

constexpr int warps = 8;
constexpr int warp_records = 4;

/// Two floats, rounded, in one word.
template <typename T>
__device__ __forceinline__ uint32_t rounded(float a, float b) {
  const T pair[2] = {from_float<T>(a), from_float<T>(b)};
  return static_cast<uint32_t>(reinterpret_cast<const uint16_t*>(pair)[0]) |
         static_cast<uint32_t>(reinterpret_cast<const uint16_t*>(pair)[1]) << 16;
}

struct Range {
  int32_t cols;
  int32_t first;  // of the rows, a multiple of panel_height
  int32_t count;
  const float* scales;  // of all rows, or null
  int64_t data_step;    // bytes from weight to weight, of so many as the grid is high
  int64_t to_step;      // elements

  __device__ float scale(int64_t row) const { return scales == nullptr ? 1.0F : scales[first + row]; }
};

/// A record's values, of which a lane has some, as floats of the type T.
template <typename Format, typename T>
__device__ __forceinline__ void store_record(T* to, const Unit<Format, T>& unit, const Range& range, int64_t panel,
                                             int record) {
  using P = Packed<Format>;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int block = 0; block < Unit<Format, T>::blocks; ++block) {
    const Fragments levels = unit.fragments(block);
    const Factors factors = unit.factors(block, lane);
    const int column = record * record_columns + 32 * block;
    if (column >= range.cols) break;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t row = panel * panel_height + 8 * half + lane / 4;
      if (row >= range.count) continue;
      const float row_scale = range.scale(row);
      uint32_t words[4];
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const float2 level = Magic<T>::floats(levels.a[half][p]);
        const float scale = factors.scale[half][P::narrow ? p / 2 : 0];
        words[p] = rounded<T>(row_scale * (scale * level.x + factors.minimum[half]),
                              row_scale * (scale * level.y + factors.minimum[half]));
      }
      T* const out = to + row * range.cols + column;
      if constexpr (P::narrow) {
        __stcg(reinterpret_cast<uint2*>(out + 4 * (lane % 4)), make_uint2(words[0], words[1]));
        __stcg(reinterpret_cast<uint2*>(out + 16 + 4 * (lane % 4)), make_uint2(words[2], words[3]));
      } else {  // the plain assignment would be four stores
        __stcg(reinterpret_cast<uint4*>(out + 8 * (lane % 4)), make_uint4(words[0], words[1], words[2], words[3]));
      }
    }
  }
}

/// A warp for some neighbouring records, all of which are on their way together.
template <typename Format, typename T>
__global__ void __launch_bounds__(32 * warps) dequantize_records(T* to, const std::byte* data, Range range) {
  using P = Packed<Format>;
  allow_next();
  const int lane = threadIdx.x % 32;
  const int records = records_of(range.cols);
  const int turns = (records + warp_records - 1) / warp_records;
  const int64_t number = int64_t{blockIdx.x} * warps + threadIdx.x / 32;
  const int64_t panel = number / turns;
  const int first = static_cast<int>(number % turns) * warp_records;
  if (panel * panel_height >= range.count) return wait_for_previous();
  const std::byte* const from =
      data + blockIdx.y * range.data_step + (range.first / panel_height + panel) * panel_bytes<Format>(range.cols);
  to += blockIdx.y * range.to_step;
  Unit<Format, T> units[warp_records];
#pragma unroll
  for (int i = 0; i < warp_records; ++i) {
    const int record = min(first + i, records - 1);
    units[i].load(from + headers_bytes<Format>(range.cols) + int64_t{record} * P::record_bytes,
                  from + record / 2 * panel_height * P::header, lane);
  }
  wait_for_previous();
#pragma unroll
  for (int i = 0; i < warp_records; ++i) {
    if (first + i < records) store_record<Format, T>(to, units[i], range, panel, first + i);
  }
}

/// Floats, one thread for eight values.
template <typename Format, typename T>
__global__ void __launch_bounds__(32 * warps) convert_rows(T* to, const std::byte* data, Range range) {
  allow_next();
  const int64_t number = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int eighths = range.cols / 8;
  const int64_t row = number / eighths;
  if (row >= range.count) return wait_for_previous();
  data += blockIdx.y * range.data_step;
  to += blockIdx.y * range.to_step;
  const Eight values = decode_packed<Format>(data, range.cols, range.first + row, static_cast<int>(number % eighths));
  const float scale = range.scale(row);
  wait_for_previous();
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = rounded<T>(scale * values.v[2 * i], scale * values.v[2 * i + 1]);
  __stcg(reinterpret_cast<uint4*>(to + 8 * number), make_uint4(words[0], words[1], words[2], words[3]));
}

template <typename Y>
__global__ void __launch_bounds__(256) add_bias(Y* y, int64_t stride, const float* bias, int rows, bool accumulate) {
  allow_next();
  wait_for_previous();
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  Y* const at = y + blockIdx.y * stride + row;
  *at = from_float<Y>(accumulate ? to_float(*at) + bias[row] : bias[row]);
}

template <typename T>
void dequantize_to(const Queue& queue, T* to, const Weight& weight, Range range, unsigned weights) {
  visit_format(weight.format, [&]<typename Format>(Format) {
    if constexpr (in_rows<Format>) {
      const int64_t threads = int64_t{range.count} * (range.cols / 8);
      const auto blocks = static_cast<unsigned>((threads + 32 * warps - 1) / (32 * warps));
      launch(queue, convert_rows<Format, T>, dim3(blocks, weights), 32 * warps, 0, to, weight.data, range);
    } else {
      const int64_t turns = (records_of(range.cols) + warp_records - 1) / warp_records;
      const int64_t all = (range.count + panel_height - 1) / panel_height * turns;
      const auto blocks = static_cast<unsigned>((all + warps - 1) / warps);
      launch(queue, dequantize_records<Format, T>, dim3(blocks, weights), 32 * warps, 0, to, weight.data, range);
    }
  });
}

}  // namespace

void dequantize(const Queue& queue, std::byte* to, Dtype activations, const Weight& weight, const float* scales,
                int32_t first, int32_t count) {
  const Range range{weight.cols, first, count, scales, 0, 0};
  if (activations == Dtype::f16) {
    dequantize_to(queue, reinterpret_cast<Half*>(to), weight, range, 1);
  } else {
    dequantize_to(queue, reinterpret_cast<Bf16*>(to), weight, range, 1);
  }
}

void dequantize_all(const Queue& queue, std::byte* to, Dtype activations, const Weight& first, int64_t step,
                    int32_t weights, int64_t to_step) {
  const Range range{first.cols, 0, first.rows, nullptr, step, to_step / 2};
  if (activations == Dtype::f16) {
    dequantize_to(queue, reinterpret_cast<Half*>(to), first, range, static_cast<unsigned>(weights));
  } else {
    dequantize_to(queue, reinterpret_cast<Bf16*>(to), first, range, static_cast<unsigned>(weights));
  }
}

void begin_with_bias(const Queue& queue, Tensor y, Tensor bias, bool accumulate) {
  const dim3 grid(static_cast<unsigned>((y.dims[1] + 255) / 256), static_cast<unsigned>(y.dims[0]));
  visit_activation(y.dtype, [&]<typename Y>(Y) {
    launch(queue, add_bias<Y>, grid, 256, 0, y.as<Y>(), y.strides[0], bias.as<float>(), y.dims[1], accumulate);
  });
}

}  // namespace quern::cuda
