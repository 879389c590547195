// Weights: what blocks ask a checkpoint for while a model is built. Names are those of Hugging Face files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "ops/linear.h"
#include "tensor/tensor.h"

namespace quern {

class Weights {
 public:
  virtual ~Weights() = default;

  virtual bool has(std::string_view name) const = 0;
  /// One tensor [rows, cols] in packed layout.
  virtual Result<Weight> weight(const std::string& name, int rows, int cols) = 0;
  /// Slice `index` of a stack [count, rows, cols] (experts stored as one tensor), rows [first_row, first_row + rows).
  virtual Result<Weight> stacked(const std::string& name, int index, std::span<const int64_t> shape, int first_row,
                                 int rows) = 0;
  /// A vector [size] as f32, `offset` added to every element.
  virtual Result<Tensor> vector(const std::string& name, int size, float offset) = 0;
};

}  // namespace quern
