#include "ops/elementwise.h"

#include "ops/cost.h"

namespace quern {

void add(Exec& exec, Tensor x, Tensor y, float factor) {
  CHECK(x.rank == 2 && y.rank == 2 && x.dims[0] == y.dims[0] && x.dims[1] == y.dims[1]);
  CHECK(x.dtype == Dtype::f32 && y.dtype == Dtype::f32);
  tell_bytes(exec, x, x, y);
  kernels::add(exec, x, y, factor);
}

void scale(Exec& exec, Tensor x, float factor) {
  CHECK(x.rank == 2 && x.dtype == Dtype::f32);
  tell_bytes(exec, x, x);
  kernels::scale(exec, x, factor);
}

void scale_by(Exec& exec, Tensor x, Tensor factor) {
  CHECK(x.rank == 2 && x.dtype == Dtype::f32 && factor.dtype == Dtype::f32 && factor.dims[0] == 1);
  tell_bytes(exec, x, x, factor);
  kernels::scale_by(exec, x, factor);
}

void softcap(Exec& exec, Tensor x, float cap) {
  CHECK(x.rank == 2 && x.dtype == Dtype::f32 && cap > 0);
  tell_bytes(exec, x, x);
  kernels::softcap(exec, x, cap);
}

void gate_rows(Exec& exec, Tensor x, Tensor gate) {
  CHECK(x.rank == 2 && x.dtype == exec.activations && gate.rank == 2 && gate.dtype == Dtype::f32);
  CHECK(gate.dims[0] == x.dims[0] && gate.dims[1] == 1);
  tell_bytes(exec, x, x, gate);
  kernels::gate_rows(exec, x, gate);
}

void copy_heads(Exec& exec, Tensor y, Tensor x) {
  CHECK(x.rank == 3 && y.rank == 3 && x.dtype == exec.activations && y.dtype == x.dtype);
  for (int i = 0; i < 3; ++i) CHECK(x.dims[i] == y.dims[i]);
  CHECK(x.strides[2] == 1 && y.strides[2] == 1);
  tell_bytes(exec, y, x);
  kernels::copy_heads(exec, y, x);
}

Tensor to_activations(Exec& exec, Tensor x) {
  CHECK(x.rank == 2 && x.dtype == Dtype::f32);
  if (exec.activations == Dtype::f32) return x;
  const Tensor y = exec.arena.tensor(exec.activations, x.dims[0], x.dims[1]);
  tell_bytes(exec, y, x);
  kernels::convert(exec, y, x);
  return y;
}

}  // namespace quern
