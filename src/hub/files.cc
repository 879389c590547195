#include "hub/files.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>
#include <string_view>
#include <utility>

namespace quern {
namespace {

/// From the one to take when nothing is said; others come after, by name.
constexpr std::array<std::string_view, 24> kPreferred = {
    "Q4_K_M", "UD-Q4_K_XL", "Q4_K_S", "MXFP4", "MXFP4_MOE", "Q4_1", "Q4_0", "IQ4_NL",
    "IQ4_XS", "Q5_K_M",     "Q5_K_S", "Q5_1",  "Q5_0",      "Q6_K", "Q8_0", "Q3_K_L",
    "Q3_K_M", "Q3_K_S",     "BF16",   "F16",   "IQ3_XXS",   "Q2_K", "Q2_0", "F32"};

/// Beside the weights, what a folder with safetensors may have that is read.
constexpr std::array<std::string_view, 19> kSmallFiles = {"config.json",
                                                          "generation_config.json",
                                                          "tokenizer.json",
                                                          "tokenizer_config.json",
                                                          "tokenizer.model",
                                                          "tekken.json",
                                                          "special_tokens_map.json",
                                                          "added_tokens.json",
                                                          "vocab.json",
                                                          "vocab.txt",
                                                          "merges.txt",
                                                          "chat_template.json",
                                                          "chat_template.jinja",
                                                          "modules.json",
                                                          "sentence_bert_config.json",
                                                          "config_sentence_transformers.json",
                                                          "README.md",
                                                          "LICENSE",
                                                          "LICENSE.md"};

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

std::string_view last_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

/// Files that go with a GGUF model but are none: projectors, importance matrices, drafts for speculation.
bool is_extra(std::string_view path) {
  const std::string name = lower(last_name(path));
  return name.find("mmproj") != std::string::npos || name.find("imatrix") != std::string::npos;
}

/// What models are sorted by.
std::pair<size_t, std::string> preference(const ModelFiles& model) {
  const auto at = std::find(kPreferred.begin(), kPreferred.end(), quantization_in(model.entry));
  return {static_cast<size_t>(at - kPreferred.begin()), model.entry};
}

std::vector<ModelFiles> gguf_models(const std::vector<HubFile>& files) {
  std::map<std::string, std::map<int, HubFile>> series;  // by stem and number of parts
  for (const HubFile& file : files) {
    if (!lower(file.path).ends_with(".gguf") || is_extra(file.path)) continue;
    const PartName part = part_name(file.path);
    series[fmt::format("{}\n{:05}", part.stem, part.count)].emplace(part.number, file);
  }
  std::vector<ModelFiles> models;
  std::map<std::string, int> uses;  // of a quantization
  for (const auto& [key, parts] : series) {
    const HubFile& first = parts.begin()->second;
    if (static_cast<int>(parts.size()) != part_name(first.path).count) continue;
    ModelFiles model{quantization_in(first.path), first.path, {}};
    for (const auto& [number, file] : parts) model.files.push_back(file);
    ++uses[model.variant];
    models.push_back(std::move(model));
  }
  for (ModelFiles& model : models) {
    if (model.variant.empty() || uses[model.variant] > 1) model.variant = model.entry;
  }
  std::sort(models.begin(), models.end(),
            [](const ModelFiles& a, const ModelFiles& b) { return preference(a) < preference(b); });
  return models;
}

/// The weights that the loader takes: one model.safetensors, else all shards and their index, else the only file.
std::vector<HubFile> safetensors_among(const std::vector<HubFile>& files) {
  std::vector<HubFile> all, shards, index;
  for (const HubFile& file : files) {
    if (file.path == "model.safetensors") return {file};
    if (file.path == "model.safetensors.index.json") index.push_back(file);
    if (!file.path.ends_with(".safetensors") || file.path.find('/') != std::string::npos) continue;
    if (file.path.starts_with("consolidated") || file.path.starts_with("adapter")) continue;
    all.push_back(file);
    if (part_name(file.path).count > 1) shards.push_back(file);
  }
  if (index.empty()) return all.size() == 1 && shards.empty() ? all : std::vector<HubFile>();
  if (shards.empty()) shards = all;  // named in a way of their own: the index lists them
  if (shards.empty()) return {};
  const int count = part_name(shards.front().path).count;
  if (count > 1 && static_cast<int>(shards.size()) != count) return {};
  shards.push_back(index.front());
  return shards;
}

std::vector<ModelFiles> safetensors_models(const std::vector<HubFile>& files) {
  ModelFiles model{"", "", safetensors_among(files)};
  if (model.files.empty()) return {};
  bool configured = false;
  for (const HubFile& file : files) {
    configured = configured || file.path == "config.json";
    const bool small = std::find(kSmallFiles.begin(), kSmallFiles.end(), file.path) != kSmallFiles.end();
    // The modules of sentence-transformers: 1_Pooling/config.json, 2_Dense/model.safetensors.
    const bool module = file.path.size() > 2 && file.path[0] >= '0' && file.path[0] <= '9' && file.path[1] == '_' &&
                        (file.path.ends_with("/config.json") || file.path.ends_with("/model.safetensors"));
    const bool named_template = file.path.starts_with("additional_chat_templates/") && file.path.ends_with(".jinja");
    if (small || module || named_template) model.files.push_back(file);
  }
  if (!configured) return {};
  return {std::move(model)};
}

std::string what_there_is(const ModelName& name, const std::vector<ModelFiles>& models,
                          const std::vector<HubFile>& files) {
  std::string list;
  for (const ModelFiles& model : models) {
    if (!model.variant.empty()) list += fmt::format("{}{}", list.empty() ? "" : ", ", model.variant);
  }
  if (!list.empty()) return fmt::format("{} has no {}; there are: {}", name.repository, name.variant, list);
  if (!models.empty())
    return fmt::format("{} has no GGUF files to choose from; leave out ':{}'", name.repository, name.variant);
  const bool pickled = std::any_of(files.begin(), files.end(), [](const HubFile& file) {
    return file.path.ends_with(".bin") || file.path.ends_with(".pt") || file.path.ends_with(".pth");
  });
  return fmt::format("{} has no complete model of safetensors or GGUF files{}", name.repository,
                     pickled ? "; its pickled PyTorch files (.bin, .pt) can run code and are never loaded" : "");
}

}  // namespace

std::vector<ModelFiles> models_among(const std::vector<HubFile>& files) {
  std::vector<ModelFiles> models = safetensors_models(files);
  for (ModelFiles& model : gguf_models(files)) models.push_back(std::move(model));
  return models;
}

Result<ModelFiles> choose_model(const ModelName& name, const std::vector<HubFile>& files) {
  const std::vector<ModelFiles> models = models_among(files);
  const std::string wanted = lower(name.variant);
  for (const ModelFiles& model : models) {
    const std::string entry = lower(model.entry);
    const std::string file(last_name(entry));
    const bool named = wanted.empty() || wanted == lower(model.variant) || wanted == entry || wanted == file ||
                       wanted + ".gguf" == file;
    if (named) return model;
  }
  for (const ModelFiles& model : models) {  // the first of several files of that quantization
    if (!model.entry.empty() && lower(quantization_in(model.entry)) == wanted) return model;
  }
  return Error{what_there_is(name, models, files)};
}

}  // namespace quern
