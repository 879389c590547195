#include "ops/elementwise.h"

namespace quern {

void add(Exec& exec, Tensor x, Tensor y) {
  CHECK(x.rank == 2 && y.rank == 2 && x.dims[0] == y.dims[0] && x.dims[1] == y.dims[1]);
  CHECK(x.dtype == Dtype::f32 && y.dtype == Dtype::f32);
  kernels::add(exec, x, y);
}

void scale(Exec& exec, Tensor x, float factor) {
  CHECK(x.rank == 2 && x.dtype == Dtype::f32);
  kernels::scale(exec, x, factor);
}

void softcap(Exec& exec, Tensor x, float cap) {
  CHECK(x.rank == 2 && x.dtype == Dtype::f32 && cap > 0);
  kernels::softcap(exec, x, cap);
}

}  // namespace quern
