#include "ops/gated.h"

#include "ops/cost.h"

namespace quern {

Tensor gated(Exec& exec, Tensor gate_up, Activation activation) {
  CHECK(gate_up.rank == 2 && gate_up.dtype == exec.activations && gate_up.dims[1] % 2 == 0);
  const Tensor y = exec.arena.tensor(gate_up.dtype, gate_up.dims[0], gate_up.dims[1] / 2);
  tell_bytes(exec, y, gate_up);
  kernels::gated(exec, y, gate_up, activation);
  return y;
}

}  // namespace quern
