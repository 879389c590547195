#include "backend/cuda/held.h"

#include <utility>

namespace quern::cuda {

void hold(const Queue& queue, Held held) {
  launch_held(queue);
  *native(queue).held = std::move(held);
}

Held take_held(const Queue& queue, const Tensor& result) {
  Held& held = *native(queue).held;
  return held.result == result.data ? std::exchange(held, {}) : Held{};
}

void launch_held(const Queue& queue) {
  Held& held = *native(queue).held;
  if (held.result == nullptr) return;
  const Held taken = std::exchange(held, {});
  taken.launch(queue);
}

}  // namespace quern::cuda
