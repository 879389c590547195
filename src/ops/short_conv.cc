#include "ops/short_conv.h"

#include "ops/cost.h"

namespace quern {

Tensor short_conv(Exec& exec, Tensor x, const ShortConvWeights& weights, const RowState& state,
                  const Segments& segments) {
  const int32_t taps = weights.taps.dims[0];
  CHECK(x.rank == 2 && x.dtype == exec.activations && x.dims[1] % conv_channel_step == 0);
  CHECK(weights.taps.rank == 2 && weights.taps.dims[1] == x.dims[1] && taps >= min_conv_taps && taps <= max_conv_taps);
  CHECK(!weights.bias || weights.bias.dims[0] == x.dims[1]);
  const Tensor y = exec.arena.tensor(exec.activations, x.dims[0], x.dims[1]);
  tell_cost(exec, [&] {
    const double state = static_cast<double>(short_conv_state_bytes(taps, x.dims[1]));
    return Cost{.bytes = bytes_of(x) + bytes_of(y) + bytes_of(weights.taps) + 2 * state * segments.rows.dims[0],
                .flops = 2.0 * taps * static_cast<double>(x.elements())};
  });
  kernels::short_conv(exec, y, x, weights, state, segments);
  return y;
}

}  // namespace quern
