#include "ops/grow_queries.h"

#include "ops/cost.h"

namespace quern {

void grow_queries(Exec& exec, Tensor q, Tensor positions, float beta, float period) {
  CHECK(q.rank == 2 && q.dtype == exec.activations && positions.dims[0] == q.dims[0] && period > 0);
  tell_bytes(exec, q, q, positions);
  kernels::grow_queries(exec, q, positions, beta, period);
}

}  // namespace quern
