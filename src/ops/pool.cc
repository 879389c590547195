#include "ops/pool.h"

#include "ops/cost.h"

namespace quern {

void mean_pool_into(Exec& exec, Tensor y, Tensor sums, Tensor x, const Segments& segments, TokenPool kind) {
  CHECK(x.rank == 2 && x.dtype == exec.activations && x.dims[0] == segments.positions.dims[0]);
  CHECK(sums.rank == 2 && sums.dtype == Dtype::f32 && sums.dims[1] == x.dims[1]);
  CHECK(y.rank == 2 && y.dims[0] == segments.rows.dims[0] && y.dims[1] == x.dims[1]);
  CHECK(segments.starts.dims[0] == y.dims[0] + 1);
  tell_bytes(exec, x, y, y);
  kernels::mean_pool(exec, y, sums, x, segments, kind);
}

}  // namespace quern
