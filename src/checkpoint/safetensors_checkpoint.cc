// A directory in the layout of Hugging Face: config.json, generation_config.json, safetensors files.
#include <algorithm>
#include <dirent.h>
#include <fmt/format.h>
#include <set>
#include <unordered_map>

#include "base/file.h"
#include "checkpoint/fp8_weights.h"
#include "checkpoint/mxfp4_pairs.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/wording.h"

namespace quern {
namespace {

constexpr int64_t largest_config = 16 << 20;
constexpr int64_t largest_index = 128 << 20;
constexpr std::string_view index_name = "model.safetensors.index.json";

class SafetensorsCheckpoint final : public Checkpoint {
 public:
  static Result<std::unique_ptr<Checkpoint>> open(const std::string& directory);

  CheckpointKind kind() const override { return CheckpointKind::safetensors; }
  const std::string& path() const override { return directory_; }
  const StoredTensor* find(std::string_view name) const override {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &tensors_[found->second];
  }
  std::span<const StoredTensor> tensors() const override { return tensors_; }
  const Json& config() const override { return config_; }
  const Json& generation_config() const override { return generation_config_; }
  Result<std::optional<StoredVocabulary>> vocabulary() const override { return std::optional<StoredVocabulary>(); }
  void drop(std::span<const std::byte> bytes) const override {
    files_.front().drop(bytes.data(), bytes.size());  // any file can: it is the address that counts
  }
  Status check_unchanged() const override {
    for (const MappedFile& file : files_) TRY(file.check_unchanged());
    return {};
  }

 private:
  std::string file(std::string_view name) const { return fmt::format("{}/{}", directory_, name); }
  Status read_configs();
  /// The index's map of tensors to shards; null when a single file needs none.
  Result<Json> open_files();
  Result<Json> open_shards();
  Status add_file(const std::string& name);
  Status add_modules();
  Status index_tensors();
  Status check_index(const Json& weight_map) const;

  std::string directory_;
  std::vector<MappedFile> files_;
  std::vector<std::string> file_names_;
  std::vector<size_t> file_of_;  // of each tensor
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;
  Json config_;
  Json generation_config_;
};

Result<Json> read_object(const std::string& path, int64_t max_bytes) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, max_bytes));
  auto json = Json::parse(text);
  if (!json.ok()) return Error{fmt::format("{}: {}", path, json.error().message)};
  if (!json->is_object()) return Error{fmt::format("{}: is {}, expected an object", path, json->kind())};
  return json;
}

std::vector<std::string> files_in(const std::string& directory) {
  std::vector<std::string> names;
  DIR* entries = ::opendir(directory.c_str());
  if (entries == nullptr) return names;
  while (const dirent* entry = ::readdir(entries)) names.emplace_back(entry->d_name);
  ::closedir(entries);
  std::sort(names.begin(), names.end());
  return names;
}

/// A name inside the directory and nothing else: names from files never become paths.
bool is_plain_name(std::string_view name) {
  return name.ends_with(".safetensors") && name.front() != '.' &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

Result<std::unique_ptr<Checkpoint>> SafetensorsCheckpoint::open(const std::string& directory) {
  auto checkpoint = std::make_unique<SafetensorsCheckpoint>();
  checkpoint->directory_ = directory;
  TRY(checkpoint->read_configs());
  ASSIGN_OR_RETURN(const Json weight_map, checkpoint->open_files());
  TRY(checkpoint->add_modules());
  TRY(checkpoint->index_tensors());
  if (weight_map.is_object()) TRY(checkpoint->check_index(weight_map));
  ASSIGN_OR_RETURN(checkpoint->tensors_, join_mxfp4_pairs(std::move(checkpoint->tensors_), directory));
  TRY(checkpoint->index_tensors());
  return std::unique_ptr<Checkpoint>(std::move(checkpoint));
}

Status SafetensorsCheckpoint::read_configs() {
  if (!file_exists(file("config.json"))) {
    for (const std::string& name : files_in(directory_)) {
      if (name.ends_with(".gguf"))
        return Error{fmt::format("{}: give the GGUF file itself: {}", directory_, file(name))};
    }
    return Error{
        fmt::format("{}: has no config.json; give a .gguf file, or a directory with config.json, "
                    "*.safetensors and tokenizer.json",
                    directory_)};
  }
  ASSIGN_OR_RETURN(config_, read_object(file("config.json"), largest_config));
  TRY(check_quantization(config_, file("config.json")));
  if (file_exists(file("generation_config.json"))) {
    ASSIGN_OR_RETURN(generation_config_, read_object(file("generation_config.json"), largest_config));
  }
  return {};
}

Result<Json> SafetensorsCheckpoint::open_files() {
  std::vector<std::string> names = files_in(directory_);
  const auto has = [&](std::string_view name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  if (!has("model.safetensors") && has(index_name)) return open_shards();
  const bool pickled = std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth");
  });
  if (has("model.safetensors")) names = {"model.safetensors"};
  std::erase_if(names, [](const std::string& name) { return !is_plain_name(name); });
  if (names.size() > 1) {
    return Error{fmt::format("{}: has {} .safetensors files but no {}", directory_, names.size(), index_name)};
  }
  if (names.empty()) {
    return Error{fmt::format("{}: has no .safetensors file{}", directory_,
                             pickled ? "; pickled PyTorch files (.bin, .pt) can run code and are never loaded" : "")};
  }
  TRY(add_file(names.front()));
  return Json();
}

Result<Json> SafetensorsCheckpoint::open_shards() {
  const std::string path = file(index_name);
  ASSIGN_OR_RETURN(const Json index, read_object(path, largest_index));
  const Json* map = index.find("weight_map");
  if (map == nullptr || !map->is_object() || map->members().empty()) {
    return Error{fmt::format("{}: \"weight_map\" is missing, empty or no object", path)};
  }
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : map->members()) {
    if (!shard.is_string() || !is_plain_name(shard.as_string())) {
      return Error{fmt::format("{}: tensor {} is said to be in {}, which names no .safetensors file of this directory",
                               path, quoted(tensor), quoted(shard.dump()))};
    }
    shards.insert(shard.as_string());
  }
  for (const std::string& shard : shards) {
    if (!file_exists(file(shard))) return Error{fmt::format("{}: the shard {} is missing", directory_, quoted(shard))};
    TRY(add_file(shard));
  }
  return *map;
}

Status SafetensorsCheckpoint::check_index(const Json& weight_map) const {
  for (const auto& [tensor, shard] : weight_map.members()) {
    const auto found = by_name_.find(tensor);
    if (found != by_name_.end() && file_names_[file_of_[found->second]] == shard.as_string()) continue;
    return Error{fmt::format("{}: tensor {} is not in {}, where the index has it", file(index_name), quoted(tensor),
                             quoted(shard.as_string()))};
  }
  return {};
}

Status SafetensorsCheckpoint::add_file(const std::string& name) {
  ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(file(name)));
  ASSIGN_OR_RETURN(std::vector<StoredTensor> tensors, parse_safetensors(mapped.bytes(), file(name)));
  std::move(tensors.begin(), tensors.end(), std::back_inserter(tensors_));
  file_of_.resize(tensors_.size(), files_.size());
  files_.push_back(std::move(mapped));
  file_names_.push_back(name);
  return {};
}

/// The Dense modules of sentence-transformers: tensor "linear.weight" of the folder 2_Dense is "2_Dense.linear.weight".
Status SafetensorsCheckpoint::add_modules() {
  if (!file_exists(file("modules.json"))) return {};
  ASSIGN_OR_RETURN(const std::string text, read_file(file("modules.json"), largest_config));
  const auto modules = Json::parse(text);
  if (!modules.ok() || !modules->is_array()) return {};  // who asks for vectors is told
  for (const Json& module : modules->items()) {
    const std::string folder = module.string("path").value_or("");
    const bool plain = !folder.empty() && folder.find_first_of(std::string_view("/\\.\0", 4)) == std::string::npos;
    if (!module.string("type").value_or("").ends_with(".Dense") || !plain) continue;
    const size_t first = tensors_.size();
    TRY(add_file(folder + "/model.safetensors"));
    for (size_t i = first; i < tensors_.size(); ++i) tensors_[i].name = folder + "." + tensors_[i].name;
  }
  return {};
}

Status SafetensorsCheckpoint::index_tensors() {
  by_name_.clear();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto [other, added] = by_name_.emplace(tensors_[i].name, i);
    if (!added) {
      return Error{fmt::format("{}: tensor {} is in two shards, {} and {}", directory_, quoted(tensors_[i].name),
                               file_names_[file_of_[other->second]], file_names_[file_of_[i]])};
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> open_safetensors(const std::string& directory) {
  return SafetensorsCheckpoint::open(directory);
}

}  // namespace quern
