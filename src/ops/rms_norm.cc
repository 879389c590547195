#include "ops/rms_norm.h"

#include "ops/cost.h"

namespace quern {

Tensor rms_norm(Exec& exec, Tensor x, Tensor weight, float eps) {
  const Tensor y = exec.arena.tensor(exec.activations, x.dims[0], x.dims[1]);
  rms_norm_into(exec, y, x, weight, eps);
  return y;
}

void rms_norm_into(Exec& exec, Tensor y, Tensor x, Tensor weight, float eps) {
  CHECK(x.rank == 2 && x.dtype == Dtype::f32 && weight.dims[0] == x.dims[1]);
  CHECK(y.rank == 2 && y.dims[0] == x.dims[0] && y.dims[1] == x.dims[1]);
  tell_bytes(exec, y, x, weight);
  kernels::rms_norm(exec, y, x, weight, eps);
}

void rms_norm_heads(Exec& exec, Tensor x, Tensor weight, float eps) {
  const int32_t head_dim = weight.dims[0];
  CHECK(x.rank == 2 && x.dtype == exec.activations && x.dims[1] % head_dim == 0);
  const Tensor heads = heads_of(x, head_dim);
  tell_bytes(exec, x, x, weight);
  kernels::rms_norm(exec, heads, heads, weight, eps);
}

Tensor heads_of(Tensor x, int32_t head_dim) {
  Tensor heads = x;
  heads.rank = 3;
  heads.dims[1] = x.dims[1] / head_dim;
  heads.dims[2] = head_dim;
  heads.strides[1] = head_dim;
  heads.strides[2] = 1;
  return heads;
}

}  // namespace quern
