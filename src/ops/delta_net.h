// delta_net: the gated delta rule, an attention whose memory is one matrix per head instead of all keys and values.
#pragma once

#include "ops/attention.h"
#include "ops/exec.h"
#include "ops/kernel.h"
#include "ops/row_state.h"
#include "tensor/tensor.h"

namespace quern {

inline constexpr int max_delta_key_dim = 256;
/// Dimensions of keys and values come in multiples of this.
inline constexpr int delta_dim_step = 16;

struct DeltaNetParams {
  int32_t key_heads = 0;
  int32_t value_heads = 0;  // a multiple of key_heads
  bool tiled = false;       // value head h has key head h % key_heads; else neighbouring value heads share one
  bool log_rates = true;    // the rates are given as ln(-rate)
  Tensor rates;             // [value heads] f32
  Tensor time_bias;         // [value heads] f32
};

struct DeltaNetInputs {
  Tensor q;     // [tokens, key heads * key dim] activations, normalized and scaled
  Tensor k;     // the same, normalized
  Tensor v;     // [tokens, value heads * value dim] activations
  Tensor beta;  // [tokens, value heads] f32, before its sigmoid
  Tensor time;  // [tokens, value heads] f32
};

/// For each token and value head, with S [key dim, value dim] the row's state of that head:
///   S *= exp(rate * softplus(time + time_bias));   S += k (sigmoid(beta) * (v - S^T k))^T;   y = S^T q
/// one token after the other, so that a result does not depend on how a text was cut into steps.
/// y: [tokens, value heads * value dim] activations   state: delta_net_state_bytes() of each row
Tensor delta_net(Exec& exec, const DeltaNetInputs& inputs, const DeltaNetParams& params, const RowState& state,
                 const Segments& segments);

constexpr int64_t delta_net_state_bytes(int32_t value_heads, int32_t key_dim, int32_t value_dim) {
  return int64_t{value_heads} * key_dim * value_dim * static_cast<int64_t>(sizeof(float));
}

namespace kernels {
inline constinit Kernel<void(Tensor y, const DeltaNetInputs& inputs, const DeltaNetParams& params,
                             const RowState& state, const Segments& segments)>
    delta_net{"delta_net"};
}  // namespace kernels

}  // namespace quern
