// How checkpoints of Hugging Face spell 8-bit floats: which configurations are known, and the scales beside a matrix.
// Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/source.h"

namespace quern {

inline constexpr std::string_view f8_type = "F8_E4M3";

/// Whether weights quantized as config.json says can be read; which modules are is seen by the tensors that are there.
Status check_quantization(const Json& config, const std::string& path);

/// What the values of a stored 8-bit matrix are multiplied with, named X.weight_scale or X.weight_scale_inv beside
/// X.weight: one number, one for each row, or one for each block of 128 x 128.
class StoredScales {
 public:
  static constexpr int64_t block = 128;

  /// None for a matrix of another type. `shape` is what the matrix has.
  static Result<StoredScales> find(const Checkpoint& checkpoint, const StoredTensor& matrix);

  explicit operator bool() const { return tensor_ != nullptr; }
  const StoredTensor* tensor() const { return tensor_; }
  bool in_blocks() const { return blocks_ > 0; }
  /// Of columns [128 * block_column, ...) of a row.
  float at(int64_t row, int64_t block_column) const;

 private:
  const StoredTensor* tensor_ = nullptr;
  int64_t rows_ = 0;    // that have scales of their own; 0: one for all
  int64_t blocks_ = 0;  // in a row; 0: scales are of whole rows
};

}  // namespace quern
