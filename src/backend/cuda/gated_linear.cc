#include "ops/gated_linear.h"

#include "backend/cuda/held.h"
#include "backend/cuda/linear_f8.h"

namespace quern::cuda {
namespace {

void gated_linear(Queue queue, Tensor y, Tensor gate_up, Activation activation, const Matrix& matrix, bool accumulate,
                  std::byte* scratch) {
  const Tensor x = Tensor::dense(scratch, gate_up.dtype, y.dims[0], matrix.cols);
  scratch += gated_bytes(x.dtype, x.dims[0], matrix.cols);
  if (f8_linear_of_gated(queue, y, gate_up, activation, matrix, accumulate, scratch)) return;
  if (const HeldGated only = take_only_gated(queue, gate_up))
    only(queue, x, activation);
  else
    kernels::gated.find(queue.kind)(queue, x, gate_up, activation);
  kernels::linear.find(queue.kind)(queue, y, x, matrix, accumulate, scratch);
}

void gated_linear_scratch(Queue queue, const Matrix& matrix, int32_t tokens, int64_t& bytes) {
  kernels::linear_scratch.find(queue.kind)(queue, matrix, tokens, bytes);
}

const bool added = kernels::gated_linear.add(DeviceKind::cuda, gated_linear) &&
                   kernels::gated_linear_scratch.add(DeviceKind::cuda, gated_linear_scratch);

}  // namespace
}  // namespace quern::cuda
