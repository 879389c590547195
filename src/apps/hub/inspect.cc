#include "apps/hub/inspect.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <vector>

#include "base/file.h"
#include "checkpoint/gguf_parts.h"
#include "checkpoint/safetensors.h"
#include "hub/name.h"

namespace quern {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLargestText = 16 << 20;

/// Values of tensors, and which stored type has most bytes.
struct Tally {
  int64_t values = 0;
  std::map<std::string, size_t> bytes;

  void add(const std::vector<StoredTensor>& tensors) {
    for (const StoredTensor& tensor : tensors) {
      int64_t count = 1;
      for (const int64_t size : tensor.shape) count *= size;
      values += count;
      bytes[tensor.type] += tensor.bytes.size();
    }
  }
  std::string main_type() const {
    const auto most =
        std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == bytes.end() ? "" : most->first;
  }
};

/// A value of any kind that a Result may hold, or nothing.
template <typename T>
std::optional<T> given(const Result<std::optional<T>>& found) {
  return found.ok() ? *found : std::nullopt;
}

/// All metadata that are no arrays.
Json metadata_of(const Gguf& gguf) {
  Json all{Json::Object{}};
  for (const std::string_view key : gguf.keys()) {
    if (const auto text = given(gguf.string(key))) {
      all.set(key, Json(*text));
    } else if (const auto integer = given(gguf.integer(key))) {
      all.set(key, Json(*integer));
    } else if (const auto number = given(gguf.number(key))) {
      all.set(key, Json(*number));
    } else if (const auto flag = given(gguf.boolean(key))) {
      all.set(key, Json(*flag));
    }
  }
  return all;
}

Result<ModelDetails> inspect_gguf(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  ASSIGN_OR_RETURN(const GgufFiles opened, open_gguf_files(std::move(file)));
  const Gguf& gguf = opened.gguf;
  ModelDetails details;
  StoredModel& model = details.model;
  model.format = "gguf";
  model.family = given(gguf.string("general.architecture")).value_or("");
  model.context_length = given(gguf.integer(model.family + ".context_length")).value_or(0);
  model.embedding_length = given(gguf.integer(model.family + ".embedding_length")).value_or(0);
  Tally tally;
  tally.add(gguf.tensors());
  model.parameters = tally.values;
  model.quantization = quantization_in(path);
  if (model.quantization.empty()) model.quantization = tally.main_type();
  for (const MappedFile& part : opened.files) model.bytes += static_cast<int64_t>(part.bytes().size());
  details.license = given(gguf.string("general.license")).value_or("");
  details.chat_template = given(gguf.string("tokenizer.chat_template")).value_or("");
  details.config = metadata_of(gguf);
  return details;
}

std::string text_of(const std::string& path) {
  auto text = read_file(path, kLargestText);
  return text.ok() ? std::move(*text) : "";
}

Json object_of(const std::string& path) {
  auto json = Json::parse(text_of(path));
  return json.ok() && json->is_object() ? std::move(*json) : Json(Json::Object{});
}

/// The license that the front matter of a model card names.
std::string license_of_card(const std::string& card) {
  if (!card.starts_with("---\n")) return "";
  const std::string front = card.substr(0, card.find("\n---", 4));
  constexpr std::string_view key = "\nlicense:";
  const size_t at = front.find(key);
  if (at == std::string::npos) return "";
  std::string value = front.substr(at + key.size(), front.find('\n', at + 1) - at - key.size());
  std::erase_if(value, [](char c) { return c == ' ' || c == '"' || c == '\'' || c == '\r'; });
  return value;
}

std::string template_of(const std::string& folder) {
  if (std::string text = text_of(folder + "/chat_template.jinja"); !text.empty()) return text;
  return object_of(folder + "/tokenizer_config.json").string("chat_template").value_or("");
}

Result<ModelDetails> inspect_folder(const std::string& folder) {
  if (!file_exists(folder + "/config.json")) return Error{fmt::format("{}: has no config.json", folder)};
  ModelDetails details;
  StoredModel& model = details.model;
  details.config = object_of(folder + "/config.json");
  const Json* inner = details.config.find("text_config");
  const Json& text = inner != nullptr && inner->is_object() ? *inner : details.config;
  model.format = "safetensors";
  model.family = details.config.string("model_type").value_or("");
  model.context_length = text.integer("max_position_embeddings").value_or(0);
  model.embedding_length = text.integer("hidden_size").value_or(0);
  Tally tally;
  std::error_code failure;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end; it.increment(failure)) {
    const std::string path = it->path().string();
    std::error_code unreadable;
    if (it->is_regular_file(unreadable)) model.bytes += static_cast<int64_t>(it->file_size(unreadable));
    if (!path.ends_with(".safetensors")) continue;
    ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
    ASSIGN_OR_RETURN(const std::vector<StoredTensor> tensors, parse_safetensors(file.bytes(), path));
    tally.add(tensors);
  }
  model.parameters = tally.values;
  const Json* quantized = details.config.present("quantization_config");
  model.quantization = quantized != nullptr ? quantized->string("quant_method").value_or("") : tally.main_type();
  details.license = license_of_card(text_of(folder + "/README.md"));
  details.chat_template = template_of(folder);
  if (file_exists(folder + "/modules.json")) details.capabilities.emplace_back("embedding");
  return details;
}

}  // namespace

Result<ModelDetails> inspect_model(const std::string& path) {
  ASSIGN_OR_RETURN(ModelDetails details, is_directory(path) ? inspect_folder(path) : inspect_gguf(path));
  details.model.path = path;
  details.model.parameter_size = count_text(details.model.parameters);
  constexpr std::array encoders = {"bert", "nomic-bert", "roberta", "xlm-roberta", "modernbert", "modern-bert"};
  const bool encoder = std::find(encoders.begin(), encoders.end(), details.model.family) != encoders.end();
  if (encoder && details.capabilities.empty()) details.capabilities.emplace_back("embedding");
  if (details.capabilities.empty()) details.capabilities.emplace_back("completion");
  const auto mentions = [&](std::string_view word) { return details.chat_template.find(word) != std::string::npos; };
  if (mentions("tools")) details.capabilities.emplace_back("tools");
  if (mentions("<think>") || mentions("enable_thinking")) details.capabilities.emplace_back("thinking");
  return details;
}

std::string count_text(int64_t parameters) {
  const auto count = static_cast<double>(parameters);
  if (parameters >= 1'000'000'000) return fmt::format("{:.2f}B", count * 1e-9);
  if (parameters >= 1'000'000) return fmt::format("{:.2f}M", count * 1e-6);
  if (parameters >= 1'000) return fmt::format("{:.2f}K", count * 1e-3);
  return parameters > 0 ? std::to_string(parameters) : "";
}

}  // namespace quern
