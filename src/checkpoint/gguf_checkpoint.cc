#include "checkpoint/gguf_checkpoint.h"

#include <fmt/format.h>
#include <unordered_map>
#include <vector>

#include "checkpoint/gguf_architecture.h"
#include "checkpoint/gguf_parts.h"
#include "checkpoint/wording.h"

namespace quern {
namespace {

class GgufCheckpoint final : public Checkpoint {
 public:
  explicit GgufCheckpoint(GgufFiles opened) : files_(std::move(opened.files)), gguf_(std::move(opened.gguf)) {}

  Status translate();

  CheckpointKind kind() const override { return CheckpointKind::gguf; }
  const std::string& path() const override { return files_.front().path(); }
  const StoredTensor* find(std::string_view name) const override {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &tensors_[found->second];
  }
  std::span<const StoredTensor> tensors() const override { return tensors_; }
  const Json& config() const override { return config_; }
  const Json& generation_config() const override { return generation_config_; }
  Result<std::optional<StoredVocabulary>> vocabulary() const override { return gguf_vocabulary(gguf_); }
  void drop(std::span<const std::byte> bytes) const override;
  Status check_unchanged() const override {
    for (const MappedFile& file : files_) TRY(file.check_unchanged());
    return {};
  }

 private:
  Status mark_rotary_pairs(StoredTensor& tensor, std::string_view gguf_name) const;

  std::vector<MappedFile> files_;
  Gguf gguf_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;
  Json config_;
  Json generation_config_;
};

void GgufCheckpoint::drop(std::span<const std::byte> bytes) const {
  const auto at = [](const std::byte* p) { return reinterpret_cast<uintptr_t>(p); };
  for (const MappedFile& file : files_) {
    const uintptr_t begin = at(file.bytes().data());
    if (at(bytes.data()) >= begin && at(bytes.data()) < begin + file.bytes().size()) {
      file.drop(bytes.data(), bytes.size());
    }
  }
}

Status GgufCheckpoint::translate() {
  ASSIGN_OR_RETURN(config_, gguf_config(gguf_));
  ASSIGN_OR_RETURN(generation_config_, gguf_generation_config(gguf_, config_.integer("vocab_size").value_or(0)));
  ASSIGN_OR_RETURN(const auto name, gguf_.string("general.architecture"));
  const GgufArchitecture& architecture = *find_gguf_architecture(*name);
  tensors_ = gguf_.tensors();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    StoredTensor& tensor = tensors_[i];
    tensor.name = hugging_face_name(gguf_.tensors()[i].name, architecture);
    if (architecture.rotary_pairs) TRY(mark_rotary_pairs(tensor, gguf_.tensors()[i].name));
    if (!by_name_.emplace(tensor.name, i).second) {
      return Error{fmt::format("{}: two tensors mean {}", path(), quoted(tensor.name))};
    }
  }
  return {};
}

/// Queries and keys are kept for rotation of neighbours.
Status GgufCheckpoint::mark_rotary_pairs(StoredTensor& tensor, std::string_view gguf_name) const {
  const bool query = gguf_name.find(".attn_q.") != std::string_view::npos;
  const bool key = gguf_name.find(".attn_k.") != std::string_view::npos;
  const bool rows_of_heads = gguf_name.ends_with(".weight") || gguf_name.ends_with(".bias");
  if ((!query && !key) || !rows_of_heads) return {};
  const int64_t heads = config_.integer(query ? "num_attention_heads" : "num_key_value_heads").value_or(1);
  const int64_t rows = heads * config_.integer("head_dim").value_or(1);
  if (tensor.shape.front() != rows) {
    return Error{fmt::format("{}: tensor {} has {} rows, expected {} ({} heads)", path(), quoted(gguf_name),
                             tensor.shape.front(), rows, heads)};
  }
  tensor.rope_heads = static_cast<int>(heads);
  return {};
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> open_gguf(MappedFile file) {
  ASSIGN_OR_RETURN(GgufFiles opened, open_gguf_files(std::move(file)));
  auto checkpoint = std::make_unique<GgufCheckpoint>(std::move(opened));
  TRY(checkpoint->translate());
  return std::unique_ptr<Checkpoint>(std::move(checkpoint));
}

}  // namespace quern
