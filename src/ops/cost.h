// Cost: the least that an operation has to read, write and compute, for those who measure it beside a machine's limits.
#pragma once

#include "ops/exec.h"
#include "tensor/tensor.h"

namespace quern {

struct Cost {
  double bytes = 0.0;      // of operands, each read or written once
  double flops = 0.0;      // a multiply-add is two
  bool eight_bit = false;  // the products are of 8-bit floats
  int32_t rows = 0;        // of a matrix, with cols: what tells the products of a model apart
  int32_t cols = 0;
  // What follows from where the step's tokens stand in their sequences, which only the host that sent them knows.
  double key_bytes = 0.0;   // of each token that a segment sees
  double pair_flops = 0.0;  // of each pair of a token and one that it sees
  int32_t window = 0;       // 0: all earlier tokens are seen
};

/// A trace that is also told the cost of every operation, before the operation begins.
class CostTrace : public Trace {
 public:
  virtual void cost(const Cost& cost) = 0;
};

inline double bytes_of(const Tensor& tensor) {
  return tensor ? static_cast<double>(tensor.elements()) * dtype_bytes(tensor.dtype) : 0.0;
}

/// `make` gives the cost, and is called only when somebody wants to know.
template <typename Make>
void tell_cost(const Exec& exec, Make&& make) {
  if (exec.trace == nullptr) return;
  if (auto* const trace = dynamic_cast<CostTrace*>(exec.trace)) trace->cost(make());
}

/// The cost of what only reads and writes its operands; one that changes in place is named twice.
template <typename... Tensors>
void tell_bytes(const Exec& exec, const Tensors&... operands) {
  tell_cost(exec, [&] { return Cost{.bytes = (bytes_of(operands) + ...)}; });
}

}  // namespace quern
