#include "ops/rope.h"

#include "ops/cost.h"

namespace quern {

Tensor rope_table(Exec& exec, Tensor positions, Tensor inverse_frequencies, float factor) {
  CHECK(positions.dtype == Dtype::i32 && inverse_frequencies.dtype == Dtype::f32);
  const Tensor table = exec.arena.tensor(Dtype::f32, positions.dims[0], 2 * inverse_frequencies.dims[0]);
  tell_bytes(exec, table, positions);
  kernels::rope_table(exec, table, positions, inverse_frequencies, factor);
  return table;
}

void rope(Exec& exec, Tensor x, Tensor table, int head_dim, bool interleaved) {
  CHECK(x.rank == 2 && x.dtype == exec.activations && x.dims[1] % head_dim == 0);
  CHECK(table.dims[0] == x.dims[0] && table.dims[1] <= head_dim && table.dims[1] % 2 == 0);
  tell_bytes(exec, x, x, table);
  kernels::rope(exec, x, table, head_dim, interleaved);
}

}  // namespace quern
