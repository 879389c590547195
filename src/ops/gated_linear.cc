#include "ops/gated_linear.h"

#include "ops/linear_cost.h"

namespace quern {
void gated_linear_into(Exec& exec, Tensor y, Tensor gate_up, Activation activation, const Matrix& matrix,
                       bool accumulate) {
  CHECK(gate_up.rank == 2 && gate_up.dtype == exec.activations && gate_up.dims[1] == 2 * matrix.cols);
  CHECK(y.rank == 2 && y.dims[0] == gate_up.dims[0] && y.dims[1] == matrix.rows && y.strides[1] == 1);
  CHECK(y.dtype == Dtype::f32 || (y.dtype == gate_up.dtype && !accumulate));
  const int32_t tokens = y.dims[0];
  if (tokens == 0) return;
  const Arena::Scope scope(exec.arena);
  int64_t bytes = 0;
  kernels::gated_linear_scratch.find(exec.queue.kind)(exec.queue, matrix, tokens, bytes);
  std::byte* const scratch = exec.arena.take(gated_bytes(gate_up.dtype, tokens, matrix.cols) + bytes);
  tell_cost(exec, [&] { return cost_of_product(exec.queue.kind, y, gate_up, matrix, accumulate); });
  kernels::gated_linear(exec, y, gate_up, activation, matrix, accumulate, scratch);
}

}  // namespace quern
