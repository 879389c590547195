// Weights: what blocks ask a checkpoint for while a model is built. Names are those of Hugging Face files.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "ops/linear.h"
#include "tensor/tensor.h"

namespace quern {

/// A tensor of a checkpoint and how many rows it has to have.
struct NamedRows {
  std::string name;
  int rows = 0;
};

class Weights {
 public:
  virtual ~Weights() = default;

  virtual bool has(std::string_view name) const = 0;
  /// One tensor [rows, cols] in packed layout.
  virtual Result<Weight> weight(const std::string& name, int rows, int cols) = 0;
  /// Slice `index` of a stack [count, rows, cols] (experts stored as one tensor), rows [first_row, first_row + rows).
  virtual Result<Weight> stacked(const std::string& name, int index, std::span<const int64_t> shape, int first_row,
                                 int rows) = 0;
  /// Vectors as f32, one after the other, `offset` added to every element.
  virtual Result<Tensor> vectors(std::span<const NamedRows> parts, float offset) = 0;
  /// What products with the rows of these weights, as they were given out before, are multiplied with: [rows of all]
  /// f32, or none.
  virtual Tensor scales(std::span<const Weight> parts) = 0;
  /// The numbers of a tensor of `size`, or of one that holds for all: [size] f32.
  virtual Result<Tensor> spread(const std::string& name, int size) = 0;
  /// Numbers that no file holds.
  virtual Tensor constants(std::span<const float> values) = 0;

  Result<Tensor> vector(const std::string& name, int size, float offset) {
    const NamedRows part{name, size};
    return vectors({&part, 1}, offset);
  }
  /// The linear layers of these names (without ".weight"), stacked by rows, with their biases when said.
  Result<Matrix> matrix(std::initializer_list<NamedRows> parts, int cols, bool bias);
};

}  // namespace quern
