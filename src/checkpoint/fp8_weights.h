// Floats of 8 bits and less: which configurations of Hugging Face's checkpoints are known, and the scales beside a
// matrix. Any thread.
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

/// What the values of a stored matrix are multiplied with. Of 8-bit floats, named X.weight_scale or X.weight_scale_inv
/// beside X.weight: one number, one for each row, or one for each block of 128 x 128. Of NVFP4, named X.scale, if it is
/// there: one number, or of stacked matrices one for each.
class StoredScales {
 public:
  static constexpr int64_t block = 128;

  /// None for a matrix of another type.
  static Result<StoredScales> find(const Checkpoint& checkpoint, const StoredTensor& matrix);

  explicit operator bool() const { return tensor_ != nullptr; }
  const StoredTensor* tensor() const { return tensor_; }
  bool in_blocks() const { return blocks_ > 0; }
  /// An error that names the first that is not finite or below zero. Zero is that of rows of zeros.
  Status check_values(const Checkpoint& checkpoint) const;
  /// Of columns [128 * block_column, ...) of a row; rows of stacked matrices are counted through.
  float at(int64_t row, int64_t block_column) const;

 private:
  /// The scales that fit the matrix's type, by name; `what` names the matrix.
  static Result<StoredScales> of_f8(const Checkpoint& checkpoint, const StoredTensor& matrix, const std::string& what);
  static Result<StoredScales> of_nvfp4(const Checkpoint& checkpoint, const StoredTensor& matrix,
                                       const std::string& what);

  const StoredTensor* tensor_ = nullptr;
  int64_t rows_each_ = 1;  // rows that share a scale
  int64_t blocks_ = 0;     // in a row; 0: scales are of whole rows
};

}  // namespace quern
