// The plain way: a thread for each channel of a segment, which walks over its tokens.
#include "ops/short_conv.h"

#include "backend/cuda/floats.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/row_state.cuh"

namespace quern::cuda {
namespace {

constexpr int threads = 128;

struct Conv {
  const float* weights;  // [taps, channels]
  const float* bias;     // or null
  RowState state;
  const int *starts, *rows, *positions;
  int64_t x_stride, y_stride;
  int channels;
  bool silu;
};

template <typename T, int taps>
__global__ void __launch_bounds__(threads) convolve(T* y, const T* x, Conv conv) {
  wait_for_previous();
  const int channel = static_cast<int>(blockIdx.y) * threads + static_cast<int>(threadIdx.x);
  if (channel >= conv.channels) return;
  const int begin = conv.starts[blockIdx.x];
  const int end = conv.starts[blockIdx.x + 1];
  const int position = conv.positions[begin];
  if (position < 0) {
    for (int t = begin; t < end; ++t) y[t * conv.y_stride + channel] = from_float<T>(0.0F);
    return;
  }
  float* const state = state_of(conv.state, conv.rows[blockIdx.x]) + channel;
  float weights[taps];
  float past[taps - 1];
#pragma unroll
  for (int j = 0; j < taps; ++j) weights[j] = conv.weights[int64_t{j} * conv.channels + channel];
#pragma unroll
  for (int j = 0; j + 1 < taps; ++j) past[j] = position > 0 ? state[int64_t{j} * conv.channels] : 0.0F;
  const float bias = conv.bias != nullptr ? conv.bias[channel] : 0.0F;
  for (int t = begin; t < end; ++t) {
    const float now = to_float(x[t * conv.x_stride + channel]);
    float sum = bias;
#pragma unroll
    for (int j = 0; j + 1 < taps; ++j) sum = fmaf(past[j], weights[j], sum);
    sum = fmaf(now, weights[taps - 1], sum);
#pragma unroll
    for (int j = 0; j + 2 < taps; ++j) past[j] = past[j + 1];
    past[taps - 2] = now;
    y[t * conv.y_stride + channel] = from_float<T>(conv.silu ? sum / (1.0F + expf(-sum)) : sum);
  }
#pragma unroll
  for (int j = 0; j + 1 < taps; ++j) state[int64_t{j} * conv.channels] = past[j];
}

void short_conv(Queue queue, Tensor y, Tensor x, const ShortConvWeights& weights, const RowState& state,
                const Segments& segments) {
  const int channels = x.dims[1];
  const Conv conv{weights.taps.as<float>(),
                  weights.bias ? weights.bias.as<float>() : nullptr,
                  state,
                  segments.starts.as<int32_t>(),
                  segments.rows.as<int32_t>(),
                  segments.positions.as<int32_t>(),
                  x.strides[0],
                  y.strides[0],
                  channels,
                  weights.silu};
  const dim3 grid(static_cast<unsigned>(segments.rows.dims[0]),
                  static_cast<unsigned>((channels + threads - 1) / threads));
  visit_activation(x.dtype, [&]<typename T>(T) {
    const auto kernel = weights.taps.dims[0] == 2   ? convolve<T, 2>
                        : weights.taps.dims[0] == 3 ? convolve<T, 3>
                                                    : convolve<T, 4>;
    launch(queue, kernel, grid, threads, 0, y.as<T>(), x.as<T>(), conv);
  });
}

const bool added = kernels::short_conv.add(DeviceKind::cuda, short_conv);

}  // namespace
}  // namespace quern::cuda
