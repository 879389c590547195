#include "ops/delta_net.h"

#include "ops/cost.h"

namespace quern {

Tensor delta_net(Exec& exec, const DeltaNetInputs& inputs, const DeltaNetParams& params, const RowState& state,
                 const Segments& segments) {
  const int32_t tokens = inputs.q.dims[0];
  const int32_t key_dim = inputs.q.dims[1] / params.key_heads;
  const int32_t value_dim = inputs.v.dims[1] / params.value_heads;
  CHECK(params.value_heads % params.key_heads == 0);
  CHECK(key_dim % delta_dim_step == 0 && key_dim <= max_delta_key_dim && value_dim % delta_dim_step == 0);
  CHECK(inputs.q.dims[1] == params.key_heads * key_dim && inputs.k.dims[1] == inputs.q.dims[1]);
  CHECK(inputs.v.dims[1] == params.value_heads * value_dim);
  for (const Tensor& x : {inputs.q, inputs.k, inputs.v}) CHECK(x.dims[0] == tokens && x.dtype == exec.activations);
  for (const Tensor& x : {inputs.beta, inputs.time}) {
    CHECK(x.dims[0] == tokens && x.dims[1] == params.value_heads && x.dtype == Dtype::f32);
  }
  CHECK(params.rates.dims[0] == params.value_heads && params.time_bias.dims[0] == params.value_heads);
  const Tensor y = exec.arena.tensor(exec.activations, tokens, inputs.v.dims[1]);
  tell_cost(exec, [&] {
    const double state = static_cast<double>(delta_net_state_bytes(params.value_heads, key_dim, value_dim));
    const double operands = bytes_of(inputs.q) + bytes_of(inputs.k) + bytes_of(inputs.v) + bytes_of(inputs.beta) +
                            bytes_of(inputs.time) + bytes_of(y);
    return Cost{.bytes = operands + 2 * state * segments.rows.dims[0],
                .flops = 7.0 * tokens * params.value_heads * key_dim * value_dim};
  });
  kernels::delta_net(exec, y, inputs, params, state, segments);
  return y;
}

}  // namespace quern
