#include "ops/layer_norm.h"

#include "ops/cost.h"
#include "ops/rms_norm.h"

namespace quern {

Tensor layer_norm(Exec& exec, Tensor x, Tensor weight, Tensor bias, float eps) {
  const Tensor y = exec.arena.tensor(exec.activations, x.dims[0], x.dims[1]);
  layer_norm_into(exec, y, x, weight, bias, eps);
  return y;
}

void layer_norm_into(Exec& exec, Tensor y, Tensor x, Tensor weight, Tensor bias, float eps) {
  CHECK(x.rank == 2 && x.dtype == Dtype::f32 && weight.dims[0] == x.dims[1]);
  CHECK(!bias || bias.dims[0] == x.dims[1]);
  CHECK(y.rank == 2 && y.dims[0] == x.dims[0] && y.dims[1] == x.dims[1]);
  tell_bytes(exec, y, x, weight, bias);
  kernels::layer_norm(exec, y, x, weight, bias, eps);
}

void layer_norm_heads(Exec& exec, Tensor x, Tensor weight, float eps) {
  CHECK(x.rank == 2 && x.dtype == exec.activations && weight.rank == 2);
  CHECK(x.dims[1] == weight.dims[0] * weight.dims[1]);
  const Tensor heads = heads_of(x, weight.dims[1]);
  tell_bytes(exec, x, x, weight);
  kernels::layer_norm(exec, heads, heads, weight, {}, eps);
}

}  // namespace quern
