#include "ops/select.h"

#include "ops/cost.h"

namespace quern {

Tensor select_rows(Exec& exec, Tensor x, Tensor indices) {
  CHECK(x.rank == 2 && indices.rank == 1 && indices.dtype == Dtype::i32);
  const Tensor y = exec.arena.tensor(x.dtype, indices.dims[0], x.dims[1]);
  tell_bytes(exec, y, y, indices);
  kernels::select_rows(exec, y, x, indices);
  return y;
}

}  // namespace quern
