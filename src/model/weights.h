// Weights: what blocks ask a checkpoint for while a model is built. Names are those of Hugging Face files.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ops/linear.h"
#include "tensor/tensor.h"

namespace quern {

/// A tensor of a checkpoint and how many rows it has to have.
struct NamedRows {
  std::string name;
  int rows = 0;
};

/// A part of a stored matrix, or of a stack of them, that becomes a matrix of its own.
struct WeightSlice {
  std::string name;
  std::vector<int64_t> shape;  // of the stored tensor, outermost first; its rows are counted over all outer axes
  int64_t first_row = 0;
  int rows = 0;  // of the slice
  int cols = 0;
  int step = 1;  // from one row of the slice to the next: stored rows or, transposed, columns
  int run = 1;   // so many rows stand together; `step` is then from one such run to the next
  bool transposed =
      false;  // a row of the slice is a stored column, from `first_column` on; its columns are stored rows
  int first_column = 0;
};

/// Numbers [first + i * step] of row `row` of a stored matrix [rows, cols].
struct VectorSlice {
  std::string name;
  int rows = 0;
  int cols = 0;
  int row = 0;
  int size = 0;
  int first = 0;
  int step = 1;
};

/// Rows [first, first + rows) of a tensor that has `stored`.
struct RowRange {
  int stored = 0;
  int first = 0;
  int rows = 0;
};

class Weights {
 public:
  virtual ~Weights() = default;

  virtual bool has(std::string_view name) const = 0;
  /// One tensor [rows, cols] in packed layout.
  virtual Result<Weight> weight(const std::string& name, int rows, int cols) = 0;
  virtual Result<Weight> slice(const WeightSlice& slice) = 0;
  /// Vectors as f32, one after the other, `offset` added to every element.
  virtual Result<Tensor> vectors(std::span<const NamedRows> parts, float offset) = 0;
  /// Parts of matrices as f32, one after the other.
  virtual Result<Tensor> vector_slices(std::span<const VectorSlice> parts) = 0;
  /// What products with the rows of these weights, as they were given out before, are multiplied with: [rows of all]
  /// f32, or none.
  virtual Tensor scales(std::span<const Weight> parts) = 0;
  /// The numbers of a tensor of `size`, or of one that holds for all: [size] f32.
  virtual Result<Tensor> spread(const std::string& name, int size) = 0;
  /// A small matrix of floats [rows, cols], which files may keep as [rows, 1, cols]: [cols, rows] f32.
  virtual Result<Tensor> transposed(const std::string& name, int rows, int cols) = 0;
  /// Tensors whose names begin so may be in a file and are not needed.
  virtual void leave(std::string_view prefix) = 0;
  /// Numbers that no file holds.
  virtual Tensor constants(std::span<const float> values) = 0;

  Result<Tensor> vector(const std::string& name, int size, float offset) {
    const NamedRows part{name, size};
    return vectors({&part, 1}, offset);
  }
  /// Some rows of one tensor.
  Result<Weight> some_rows(const std::string& name, const RowRange& range, int cols) {
    return slice(
        {.name = name, .shape = {range.stored, cols}, .first_row = range.first, .rows = range.rows, .cols = cols});
  }
  /// The linear layers of these names (without ".weight"), stacked by rows, with their biases when said.
  Result<Matrix> matrix(std::initializer_list<NamedRows> parts, int cols, bool bias);
  /// Slices stacked by rows, all of as many columns.
  Result<Matrix> matrix_of(std::span<const WeightSlice> slices);
  /// The same where a file may keep all the rows as one layer `whole`.
  Result<Matrix> fused(const std::string& whole, std::initializer_list<NamedRows> parts, int cols, bool bias);
};

}  // namespace quern
