// A checkpoint of random weights: its config.json is all that exists.
#include <utility>

#include "base/file.h"
#include "checkpoint/source.h"

namespace quern {
namespace {

class InventedCheckpoint final : public Checkpoint {
 public:
  InventedCheckpoint(std::string path, Json config, FormatId format)
      : path_(std::move(path)), config_(std::move(config)), format_(format) {}

  CheckpointKind kind() const override { return CheckpointKind::safetensors; }
  const std::string& path() const override { return path_; }
  const StoredTensor* find(std::string_view /*name*/) const override { return nullptr; }
  std::span<const StoredTensor> tensors() const override { return {}; }
  const Json& config() const override { return config_; }
  const Json& generation_config() const override { return none_; }
  Result<std::optional<StoredVocabulary>> vocabulary() const override { return std::optional<StoredVocabulary>(); }
  void drop(std::span<const std::byte> /*bytes*/) const override {}
  std::optional<FormatId> invented() const override { return format_; }

 private:
  std::string path_;
  Json config_;
  Json none_;
  FormatId format_;
};

}  // namespace

Result<std::unique_ptr<Checkpoint>> invented_checkpoint(const std::string& path, FormatId format) {
  const std::string file = is_directory(path) ? path + "/config.json" : path;
  ASSIGN_OR_RETURN(const std::string text, read_file(file));
  auto config = Json::parse(text);
  if (!config.ok() || !config->is_object()) return Error{file + ": is no JSON object, so it is no config.json"};
  return std::unique_ptr<Checkpoint>(std::make_unique<InventedCheckpoint>(path, std::move(*config), format));
}

}  // namespace quern
