#include "ops/activate.h"

namespace quern {

void activate(Exec& exec, Tensor x, Activation activation) {
  CHECK(x.rank == 2 && x.dtype == exec.activations && activation != Activation::clamped_swiglu);
  kernels::activate(exec, x, activation);
}

}  // namespace quern
