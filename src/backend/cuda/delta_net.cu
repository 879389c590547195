// The plain way: a warp holds a few columns of a head's state in registers and walks over the tokens of a segment.
#include "ops/delta_net.h"

#include "backend/cuda/floats.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/row_state.cuh"

namespace quern::cuda {
namespace {

constexpr int warps = 8;
constexpr int columns = 4;  // of a warp

/// A row is `key_dim` long in memory: the state of a head is [value dim, key dim] here.
template <typename T>
struct Call {
  T* y;
  const T *q, *k, *v;
  const float *beta, *time, *rates, *time_bias;
  RowState state;
  const int *starts, *rows, *positions;
  int64_t y_stride, q_stride, k_stride, v_stride, beta_stride, time_stride;
  int key_heads, value_heads, key_dim, value_dim;
  bool tiled, log_rates;
};

__device__ __forceinline__ float softplus(float x) { return x > 20.0F ? x : log1pf(expf(x)); }

/// Lane i has the rows i, i + 32, ... of the warp's columns.
template <int per_lane>
struct State {
  float at[columns][per_lane] = {};

  template <bool stores>
  __device__ __forceinline__ void move(float* memory, int key_dim, int lane) {
#pragma unroll
    for (int c = 0; c < columns; ++c) {
#pragma unroll
      for (int r = 0; r < per_lane; ++r) {
        const int row = r * 32 + lane;
        float* const place = memory + int64_t{c} * key_dim + row;
        if (row >= key_dim) continue;
        if constexpr (stores) {
          *place = at[c][r];
        } else {
          at[c][r] = *place;
        }
      }
    }
  }
};

template <typename T, int per_lane>
__global__ void __launch_bounds__(warps * 32) recur(Call<T> call) {
  wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first = (static_cast<int>(blockIdx.z) * warps + static_cast<int>(threadIdx.x) / 32) * columns;
  if (first >= call.value_dim) return;
  const int head = static_cast<int>(blockIdx.y);
  const int begin = call.starts[blockIdx.x];
  const int end = call.starts[blockIdx.x + 1];
  const int position = call.positions[begin];
  const int64_t value = int64_t{head} * call.value_dim + first;
  if (position < 0) {
    for (int t = begin; t < end && lane < columns; ++t) call.y[t * call.y_stride + value + lane] = from_float<T>(0.0F);
    return;
  }
  float* const own = state_of(call.state, call.rows[blockIdx.x]) + value * call.key_dim;
  State<per_lane> state;
  if (position > 0) state.template move<false>(own, call.key_dim, lane);
  const int shared = call.value_heads / call.key_heads;
  const int64_t key = int64_t{call.tiled ? head % call.key_heads : head / shared} * call.key_dim;
  const float rate = call.log_rates ? -expf(call.rates[head]) : call.rates[head];
  for (int t = begin; t < end; ++t) {
    const float decay = expf(rate * softplus(call.time[t * call.time_stride + head] + call.time_bias[head]));
    const float beta = 1.0F / (1.0F + expf(-call.beta[t * call.beta_stride + head]));
    float k[per_lane];
    float q[per_lane];
#pragma unroll
    for (int r = 0; r < per_lane; ++r) {
      const int row = r * 32 + lane;
      k[r] = row < call.key_dim ? to_float(call.k[t * call.k_stride + key + row]) : 0.0F;
      q[r] = row < call.key_dim ? to_float(call.q[t * call.q_stride + key + row]) : 0.0F;
    }
#pragma unroll
    for (int c = 0; c < columns; ++c) {
      float known = 0.0F;
#pragma unroll
      for (int r = 0; r < per_lane; ++r) {
        state.at[c][r] *= decay;
        known = fmaf(state.at[c][r], k[r], known);
      }
      const float news = (to_float(call.v[t * call.v_stride + value + c]) - warp_sum(known)) * beta;
      float answer = 0.0F;
#pragma unroll
      for (int r = 0; r < per_lane; ++r) {
        state.at[c][r] = fmaf(k[r], news, state.at[c][r]);
        answer = fmaf(state.at[c][r], q[r], answer);
      }
      answer = warp_sum(answer);
      if (lane == c) call.y[t * call.y_stride + value + c] = from_float<T>(answer);
    }
  }
  state.template move<true>(own, call.key_dim, lane);
}

template <typename T>
Call<T> call_of(Tensor y, const DeltaNetInputs& inputs, const DeltaNetParams& params, const RowState& state,
                const Segments& segments) {
  return {.y = y.as<T>(),
          .q = inputs.q.as<T>(),
          .k = inputs.k.as<T>(),
          .v = inputs.v.as<T>(),
          .beta = inputs.beta.as<float>(),
          .time = inputs.time.as<float>(),
          .rates = params.rates.as<float>(),
          .time_bias = params.time_bias.as<float>(),
          .state = state,
          .starts = segments.starts.as<int32_t>(),
          .rows = segments.rows.as<int32_t>(),
          .positions = segments.positions.as<int32_t>(),
          .y_stride = y.strides[0],
          .q_stride = inputs.q.strides[0],
          .k_stride = inputs.k.strides[0],
          .v_stride = inputs.v.strides[0],
          .beta_stride = inputs.beta.strides[0],
          .time_stride = inputs.time.strides[0],
          .key_heads = params.key_heads,
          .value_heads = params.value_heads,
          .key_dim = inputs.q.dims[1] / params.key_heads,
          .value_dim = y.dims[1] / params.value_heads,
          .tiled = params.tiled,
          .log_rates = params.log_rates};
}

void delta_net(Queue queue, Tensor y, const DeltaNetInputs& inputs, const DeltaNetParams& params, const RowState& state,
               const Segments& segments) {
  visit_activation(y.dtype, [&]<typename T>(T) {
    const Call<T> call = call_of<T>(y, inputs, params, state, segments);
    const int tiles = (call.value_dim + warps * columns - 1) / (warps * columns);
    const dim3 grid(static_cast<unsigned>(segments.rows.dims[0]), static_cast<unsigned>(call.value_heads),
                    static_cast<unsigned>(tiles));
    const auto kernel = call.key_dim <= 64    ? recur<T, 2>
                        : call.key_dim <= 128 ? recur<T, 4>
                                              : recur<T, max_delta_key_dim / 32>;
    launch(queue, kernel, grid, warps * 32, 0, call);
  });
}

const bool added = kernels::delta_net.add(DeviceKind::cuda, delta_net);

}  // namespace
}  // namespace quern::cuda
