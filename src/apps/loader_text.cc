#include "apps/loader_text.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fmt/format.h>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/log.h"

namespace quern {
namespace {

constexpr int64_t max_text_bytes = int64_t{256} << 20;

/// Says which file an error is about.
template <typename T>
Result<T> about(const std::string& path, Result<T> result) {
  if (result.ok()) return result;
  return Error{fmt::format("{}: {}", path, result.error().message)};
}

Result<Json> read_json(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, max_text_bytes));
  return about(path, Json::parse(text));
}

/// A null Json when there is no such file.
Result<Json> read_json_if_there(const std::string& path) {
  if (!file_exists(path)) return Json();
  return read_json(path);
}

/// Files of old models need not say of which class they are; config.json says of which kind the model is.
Result<std::shared_ptr<const Tokenizer>> from_merges(const std::string& directory, Json config) {
  const std::string path = directory + "/vocab.json";
  ASSIGN_OR_RETURN(const std::string vocabulary, read_file(path, max_text_bytes));
  ASSIGN_OR_RETURN(const std::string merges, read_file(directory + "/merges.txt", max_text_bytes));
  ASSIGN_OR_RETURN(const Json model, read_json_if_there(directory + "/config.json"));
  const std::string kind = model.string("model_type").value_or("");
  if (config.present("tokenizer_class") == nullptr && kind == "roberta") {
    config = config.is_object() ? std::move(config) : Json(Json::Object());
    config.set("tokenizer_class", "RobertaTokenizer");
  }
  return about(path, Tokenizer::from_merges(vocabulary, merges, config));
}

Result<std::shared_ptr<const Tokenizer>> from_files(const std::string& directory) {
  const std::string path = directory + "/tokenizer.json";
  const std::string sentence_piece = directory + "/tokenizer.model";
  const std::string tekken = directory + "/tekken.json";
  ASSIGN_OR_RETURN(const Json config, read_json_if_there(directory + "/tokenizer_config.json"));
  if (file_exists(path)) {
    ASSIGN_OR_RETURN(const std::string text, read_file(path, max_text_bytes));
    return about(path, Tokenizer::from_json(text, config));
  }
  if (file_exists(sentence_piece)) {
    ASSIGN_OR_RETURN(const std::string model, read_file(sentence_piece, max_text_bytes));
    return about(sentence_piece, Tokenizer::from_sentence_piece(model, config));
  }
  if (file_exists(tekken)) {
    ASSIGN_OR_RETURN(const std::string text, read_file(tekken, max_text_bytes));
    return about(tekken, Tokenizer::from_tekken(text));
  }
  if (file_exists(directory + "/vocab.json") && file_exists(directory + "/merges.txt")) {
    return from_merges(directory, config);
  }
  return Error{
      fmt::format("{}: there is no tokenizer.json, tokenizer.model, tekken.json or vocab.json with merges.txt; name "
                  "one with --tokenizer",
                  directory)};
}

/// "Phi 3 Mini", "phi-3.5-mini-instruct", ...
bool is_phi_3(std::string name) {
  std::erase_if(name, [](char c) { return c == ' ' || c == '-' || c == '_'; });
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name.find("phi3") != std::string::npos;
}

Result<std::shared_ptr<const Tokenizer>> from_vocabulary(const Checkpoint& checkpoint) {
  ASSIGN_OR_RETURN(std::optional<StoredVocabulary> stored, checkpoint.vocabulary());
  if (!stored) {
    return Error{fmt::format("{}: the file has no vocabulary; name a tokenizer with --tokenizer", checkpoint.path())};
  }
  GgufVocabulary vocabulary;
  vocabulary.model = std::move(stored->model);
  vocabulary.pre = std::move(stored->pre);
  vocabulary.tokens = std::move(stored->tokens);
  vocabulary.scores = std::move(stored->scores);
  vocabulary.types = std::move(stored->types);
  vocabulary.merges = std::move(stored->merges);
  vocabulary.bos = stored->bos;
  vocabulary.eos = stored->eos;
  vocabulary.eot = stored->eot;
  vocabulary.eom = stored->eom;
  vocabulary.unknown = stored->unknown;
  vocabulary.padding = stored->padding;
  vocabulary.separator = stored->separator;
  vocabulary.cls = stored->cls;
  vocabulary.mask = stored->mask;
  vocabulary.fim_prefix = stored->fim_prefix;
  vocabulary.fim_suffix = stored->fim_suffix;
  vocabulary.fim_middle = stored->fim_middle;
  vocabulary.add_bos = stored->add_bos;
  vocabulary.add_eos = stored->add_eos;
  vocabulary.add_separator = stored->add_separator;
  vocabulary.add_space_prefix = stored->add_space_prefix;
  vocabulary.remove_extra_spaces = stored->remove_extra_spaces;
  vocabulary.lowercase = stored->lowercase;
  vocabulary.strip_accents = stored->strip_accents;
  vocabulary.charsmap = std::move(stored->charsmap);
  vocabulary.is_phi_3 = is_phi_3(stored->name);
  return about(checkpoint.path(), Tokenizer::from_gguf(std::move(vocabulary)));
}

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

using NamedTemplates = std::vector<std::pair<std::string, std::string>>;  // names and texts

struct TemplateSources {
  std::optional<std::string> chat;
  NamedTemplates named;  // others
};

/// Those in tokenizer_config.json or chat_template.json: a string, or a list of named ones, of which "default" is the
/// one for all conversations, and the first one where there is no such name.
TemplateSources templates_of(const Json& file) {
  TemplateSources found;
  const Json* value = file.present("chat_template");
  if (value == nullptr) return found;
  if (value->is_string()) found.chat = value->as_string();
  if (!value->is_array()) return found;
  for (const Json& named : value->items()) {
    const std::string name = named.string("name").value_or("");
    const auto text = named.string("template");
    if (!text) continue;
    if (!found.chat || name == "default") found.chat = *text;
    if (name != "default") found.named.emplace_back(name, *text);
  }
  return found;
}

Result<std::optional<ChatTemplate>> parse(const std::string& path, const std::string& source,
                                          const NamedTemplates& others = {}) {
  ASSIGN_OR_RETURN(ChatTemplate parsed, about(path, ChatTemplate::parse(source)));
  for (const auto& [name, text] : others) {
    const Status added = parsed.add(name, text);
    if (added.ok()) continue;
    std::string what = fmt::format("{}: the template \"{}\": {}", path, name, added.error().message);
    if (name == "tool_use") return Error{std::move(what)};
    log_warning("{}; requests cannot name it", what);  // nobody has asked for it
  }
  return std::optional<ChatTemplate>(std::move(parsed));
}

/// The .jinja files of a folder, which may be absent.
Result<NamedTemplates> additional_templates(const std::string& folder) {
  const std::filesystem::directory_iterator end_of_folder;
  NamedTemplates found;
  std::error_code end;
  for (auto entry = std::filesystem::directory_iterator(folder, end); !end && entry != end_of_folder;
       entry.increment(end)) {
    if (entry->path().extension() != ".jinja") continue;
    ASSIGN_OR_RETURN(std::string text, read_file(entry->path().string(), max_text_bytes));
    found.emplace_back(entry->path().stem().string(), std::move(text));
  }
  return found;
}

Result<std::optional<ChatTemplate>> template_from_files(const std::string& directory) {
  const std::string own = directory + "/chat_template.jinja";
  if (file_exists(own)) {
    ASSIGN_OR_RETURN(const std::string source, read_file(own, max_text_bytes));
    ASSIGN_OR_RETURN(const NamedTemplates others, additional_templates(directory + "/additional_chat_templates"));
    return parse(own, source, others);
  }
  // The last is what processors of images wrote before there were .jinja files.
  for (const char* name : {"/tokenizer_config.json", "/chat_template.json"}) {
    const std::string path = directory + name;
    ASSIGN_OR_RETURN(const Json file, read_json_if_there(path));
    const TemplateSources sources = templates_of(file);
    if (sources.chat) return parse(path, *sources.chat, sources.named);
  }
  return std::optional<ChatTemplate>();
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const Checkpoint& checkpoint, const std::string& other) {
  if (other.empty()) {
    return checkpoint.kind() == CheckpointKind::gguf ? from_vocabulary(checkpoint) : from_files(checkpoint.path());
  }
  return load_tokenizer_at(other);
}

Result<std::shared_ptr<const Tokenizer>> load_tokenizer_at(const std::string& path) {
  if (is_directory(path)) return from_files(path);
  if (path == "tokenizer.json" || path.ends_with("/tokenizer.json")) return from_files(directory_of(path));
  if (path == "tekken.json" || path.ends_with("/tekken.json")) {
    ASSIGN_OR_RETURN(const std::string text, read_file(path, max_text_bytes));
    return about(path, Tokenizer::from_tekken(text));
  }
  if (path.ends_with(".json")) {
    ASSIGN_OR_RETURN(const std::string text, read_file(path, max_text_bytes));
    return about(path, Tokenizer::from_json(text, Json()));
  }
  if (path.ends_with(".model")) {
    ASSIGN_OR_RETURN(const std::string model, read_file(path, max_text_bytes));
    return about(path, Tokenizer::from_sentence_piece(model, Json()));
  }
  if (!path.ends_with(".gguf")) {
    return Error{fmt::format(
        "{}: a tokenizer is a .json, .model or .gguf file, or a directory that has a tokenizer.json", path)};
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> file, Checkpoint::open(path));
  return from_vocabulary(*file);
}

Result<std::optional<ChatTemplate>> load_chat_template(const Checkpoint& checkpoint, const std::string& other) {
  if (other.find("{%") != std::string::npos || other.find("{{") != std::string::npos) {
    return parse("--chat-template", other);
  }
  if (!other.empty()) {
    ASSIGN_OR_RETURN(const std::string source, read_file(other, max_text_bytes));
    return parse(other, source);
  }
  if (checkpoint.kind() == CheckpointKind::safetensors) return template_from_files(checkpoint.path());
  ASSIGN_OR_RETURN(const std::optional<StoredVocabulary> stored, checkpoint.vocabulary());
  if (!stored || stored->chat_template.empty()) return std::optional<ChatTemplate>();
  return parse(checkpoint.path(), stored->chat_template, stored->named_templates);
}

}  // namespace quern
