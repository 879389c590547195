#include "backend/cuda/held.h"

#include <utility>

namespace quern::cuda {

void hold(const Queue& queue, Held held) {
  launch_held(queue);
  *native(queue).held = std::move(held);
}

NormBefore take_norm(const Queue& queue, const Tensor& x) {
  Held& held = *native(queue).held;
  const bool makes =
      held.result == x.data && held.norm.x != nullptr && held.norm.tokens == x.dims[0] && held.norm.cols == x.dims[1];
  return makes ? std::exchange(held, {}).norm : NormBefore{};
}

HeldGated take_gated(const Queue& queue, const Tensor& gate_up) {
  Held& held = *native(queue).held;
  return held.result == gate_up.data && held.gated ? std::exchange(held, {}).gated : HeldGated{};
}

HeldGated take_only_gated(const Queue& queue, const Tensor& gate_up) {
  Held& held = *native(queue).held;
  return held.result == gate_up.data && held.only_gated ? std::exchange(held, {}).only_gated : HeldGated{};
}

void launch_held(const Queue& queue) {
  Held& held = *native(queue).held;
  if (held.result == nullptr) return;
  const Held taken = std::exchange(held, {});
  taken.launch(queue);
}

}  // namespace quern::cuda
