#include "ops/modulate.h"

#include "ops/cost.h"

namespace quern {

void modulate(Exec& exec, Tensor x, Tensor gate, Modulation f) {
  CHECK(x.rank == 2 && gate.rank == 2 && x.dims[0] == gate.dims[0] && x.dims[1] == gate.dims[1]);
  CHECK(x.dtype == exec.activations && gate.dtype == exec.activations);
  tell_bytes(exec, x, x, gate);
  kernels::modulate(exec, x, gate, f);
}

}  // namespace quern
