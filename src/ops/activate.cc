#include "ops/activate.h"

#include "ops/cost.h"

namespace quern {

void activate(Exec& exec, Tensor x, Activation activation) {
  CHECK(x.rank == 2 && x.dtype == exec.activations && activation != Activation::clamped_swiglu);
  tell_bytes(exec, x, x);
  kernels::activate(exec, x, activation);
}

}  // namespace quern
