#include "checkpoint/gguf_checkpoint.h"

#include <fmt/format.h>
#include <unordered_map>

#include "checkpoint/gguf_architecture.h"
#include "checkpoint/wording.h"

namespace quern {
namespace {

class GgufCheckpoint final : public Checkpoint {
 public:
  GgufCheckpoint(MappedFile file, Gguf gguf) : file_(std::move(file)), gguf_(std::move(gguf)) {}

  Status translate();

  CheckpointKind kind() const override { return CheckpointKind::gguf; }
  const std::string& path() const override { return file_.path(); }
  const StoredTensor* find(std::string_view name) const override {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &tensors_[found->second];
  }
  std::span<const StoredTensor> tensors() const override { return tensors_; }
  const Json& config() const override { return config_; }
  const Json& generation_config() const override { return generation_config_; }
  Result<std::optional<StoredVocabulary>> vocabulary() const override { return gguf_vocabulary(gguf_); }
  void drop(std::span<const std::byte> bytes) const override { file_.drop(bytes.data(), bytes.size()); }
  Status check_unchanged() const override { return file_.check_unchanged(); }

 private:
  Status mark_rotary_pairs(StoredTensor& tensor, std::string_view gguf_name) const;

  MappedFile file_;
  Gguf gguf_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;
  Json config_;
  Json generation_config_;
};

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
  if (!query && !key) return {};
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
  ASSIGN_OR_RETURN(Gguf gguf, Gguf::parse(file.bytes(), file.path()));
  auto checkpoint = std::make_unique<GgufCheckpoint>(std::move(file), std::move(gguf));
  TRY(checkpoint->translate());
  return std::unique_ptr<Checkpoint>(std::move(checkpoint));
}

}  // namespace quern
