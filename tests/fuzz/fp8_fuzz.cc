// Scales beside 8-bit floats: of any safetensors file they are refused, or there is one for every place of the matrix.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "checkpoint/fp8_weights.h"
#include "checkpoint/safetensors.h"

namespace quern {
namespace {

class Tensors final : public Checkpoint {
 public:
  explicit Tensors(std::vector<StoredTensor> tensors) : tensors_(std::move(tensors)) {}

  CheckpointKind kind() const override { return CheckpointKind::safetensors; }
  const std::string& path() const override { return path_; }
  const StoredTensor* find(std::string_view name) const override {
    for (const StoredTensor& tensor : tensors_) {
      if (tensor.name == name) return &tensor;
    }
    return nullptr;
  }
  std::span<const StoredTensor> tensors() const override { return tensors_; }
  const Json& config() const override { return none_; }
  const Json& generation_config() const override { return none_; }
  Result<std::optional<StoredVocabulary>> vocabulary() const override { return std::optional<StoredVocabulary>(); }
  void drop(std::span<const std::byte> /*bytes*/) const override {}

 private:
  std::string path_ = "fuzz.safetensors";
  std::vector<StoredTensor> tensors_;
  Json none_;
};

void check(const Tensors& checkpoint, const StoredTensor& matrix) {
  const auto scales = StoredScales::find(checkpoint, matrix);
  CHECK(scales.ok() || !scales.error().message.empty());
  if (!scales.ok() || !*scales || matrix.bytes.empty()) return;
  const Status values = scales->check_values(checkpoint);
  CHECK(values.ok() || !values.error().message.empty());
  const int64_t rows = matrix.shape[0];
  const int64_t last = (matrix.shape.back() - 1) / StoredScales::block;
  for (const int64_t row : {int64_t{0}, rows / 2, rows - 1}) {
    for (const int64_t block : {int64_t{0}, last}) {
      volatile float scale = scales->at(row, block);
      CHECK(!values.ok() || scale >= 0.0F);
    }
  }
}

}  // namespace
}  // namespace quern

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto tensors = quern::parse_safetensors({reinterpret_cast<const std::byte*>(data), size}, "fuzz.safetensors");
  if (!tensors.ok()) return 0;
  const quern::Tensors checkpoint(std::move(*tensors));
  for (const quern::StoredTensor& tensor : checkpoint.tensors()) check(checkpoint, tensor);
  return 0;
}
