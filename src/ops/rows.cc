#include "ops/rows.h"

namespace quern {

Tensor embed(Exec& exec, const Weight& table, Tensor ids, float scale) {
  CHECK(table.layout == Layout::packed && ids.rank == 1 && ids.dtype == Dtype::i32);
  const Tensor y = exec.arena.tensor(Dtype::f32, ids.dims[0], table.cols);
  kernels::embed(exec, y, table, ids, scale);
  return y;
}

}  // namespace quern
