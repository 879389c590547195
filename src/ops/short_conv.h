// short_conv: a causal convolution of a few taps over the tokens of each sequence, every channel for itself.
#pragma once

#include "ops/attention.h"
#include "ops/exec.h"
#include "ops/kernel.h"
#include "ops/row_state.h"
#include "tensor/tensor.h"

namespace quern {

inline constexpr int min_conv_taps = 2;
inline constexpr int max_conv_taps = 4;
/// Channels come in multiples of this.
inline constexpr int conv_channel_step = 16;

struct ShortConvWeights {
  Tensor taps;        // [taps, channels] f32; the last one is of the token itself
  Tensor bias;        // [channels] f32, or none
  bool silu = false;  // of the sum
};

/// y[t] = sum over j of taps[j] * x[t - taps + 1 + j], where tokens before the segment are those of the row's state.
/// x: [tokens, channels] activations   y: the same   state: short_conv_state_bytes() of each row
Tensor short_conv(Exec& exec, Tensor x, const ShortConvWeights& weights, const RowState& state,
                  const Segments& segments);

/// The last inputs of a row: [taps - 1, channels] f32.
constexpr int64_t short_conv_state_bytes(int32_t taps, int32_t channels) {
  return int64_t{taps - 1} * channels * static_cast<int64_t>(sizeof(float));
}

namespace kernels {
inline constinit Kernel<void(Tensor y, Tensor x, const ShortConvWeights& weights, const RowState& state,
                             const Segments& segments)>
    short_conv{"short_conv"};
}  // namespace kernels

}  // namespace quern
