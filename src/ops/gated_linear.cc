#include "ops/gated_linear.h"

#include "ops/cost.h"

namespace quern {
namespace {

Cost cost_of(DeviceKind device, Tensor y, Tensor gate_up, const Matrix& matrix, bool accumulate) {
  Cost cost{.rows = matrix.rows, .cols = matrix.cols};
  cost.bytes = bytes_of(gate_up) + bytes_of(y) * (accumulate ? 2 : 1);
  for (int i = 0; i < matrix.count; ++i) {
    const Weight& part = matrix.parts[i];
    cost.bytes += static_cast<double>(packed_bytes(device, part.format, part.rows, part.cols));
    cost.eight_bit = cost.eight_bit || part.format == FormatId::f8 || part.format == FormatId::f8_block;
  }
  cost.flops = 2.0 * y.dims[0] * matrix.rows * matrix.cols;
  return cost;
}

}  // namespace

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
  tell_cost(exec, [&] { return cost_of(exec.queue.kind, y, gate_up, matrix, accumulate); });
  kernels::gated_linear(exec, y, gate_up, activation, matrix, accumulate, scratch);
}

}  // namespace quern
