#include "ops/gated_linear.h"

namespace quern::QUERN_ISA {
namespace {

void gated_linear(Queue queue, Tensor y, Tensor gate_up, Activation activation, const Matrix& matrix, bool accumulate,
                  std::byte* scratch) {
  const Tensor x = Tensor::dense(scratch, gate_up.dtype, y.dims[0], matrix.cols);
  kernels::gated.find(queue.kind)(queue, x, gate_up, activation);
  scratch += gated_bytes(x.dtype, x.dims[0], matrix.cols);
  kernels::linear.find(queue.kind)(queue, y, x, matrix, accumulate, scratch);
}

void gated_linear_scratch(Queue queue, const Matrix& matrix, int32_t tokens, int64_t& bytes) {
  kernels::linear_scratch.find(queue.kind)(queue, matrix, tokens, bytes);
}

const bool added = kernels::gated_linear.add(DeviceKind::cpu, Isa::QUERN_ISA, gated_linear) &&
                   kernels::gated_linear_scratch.add(DeviceKind::cpu, Isa::QUERN_ISA, gated_linear_scratch);

}  // namespace
}  // namespace quern::QUERN_ISA
