#include "model/weights.h"

#include <vector>

namespace quern {

Result<Matrix> Weights::matrix(std::initializer_list<NamedRows> parts, int cols, bool bias) {
  CHECK(parts.size() <= std::size(Matrix{}.parts));
  Matrix matrix;
  matrix.cols = cols;
  std::vector<NamedRows> biases;
  for (const NamedRows& part : parts) {
    ASSIGN_OR_RETURN(matrix.parts[matrix.count], weight(part.name + ".weight", part.rows, cols));
    biases.push_back({part.name + ".bias", part.rows});
    matrix.rows += part.rows;
    ++matrix.count;
  }
  matrix.scale = scales({matrix.parts, static_cast<size_t>(matrix.count)});
  if (bias) {
    ASSIGN_OR_RETURN(matrix.bias, vectors(biases, 0.0F));
  }
  return matrix;
}

Result<Matrix> Weights::matrix_of(std::span<const WeightSlice> slices) {
  CHECK(slices.size() <= std::size(Matrix{}.parts));
  Matrix matrix;
  matrix.cols = slices.front().cols;
  for (const WeightSlice& part : slices) {
    ASSIGN_OR_RETURN(matrix.parts[matrix.count], slice(part));
    matrix.rows += part.rows;
    ++matrix.count;
  }
  matrix.scale = scales({matrix.parts, static_cast<size_t>(matrix.count)});
  return matrix;
}

Result<Matrix> Weights::fused(const std::string& whole, std::initializer_list<NamedRows> parts, int cols, bool bias) {
  if (!has(whole + ".weight")) return matrix(parts, cols, bias);
  int rows = 0;
  for (const NamedRows& part : parts) rows += part.rows;
  return matrix({{whole, rows}}, cols, bias);
}

}  // namespace quern
