// Tokenizers from tokenizer.json.
#include <algorithm>
#include <deque>
#include <fmt/format.h>

#include "text/tokenizer/decode.h"
#include "text/tokenizer/model_json.h"
#include "text/tokenizer/pipeline.h"
#include "text/tokenizer/tokenizer_file.h"

namespace quern {
namespace {

constexpr int64_t max_gap = 100'000;  // ids beyond the number of tokens

Result<std::vector<AddedToken>> read_added(const Json* list) {
  std::vector<AddedToken> tokens;
  if (list == nullptr || list->is_null()) return tokens;
  if (!list->is_array()) return Error{"tokenizer.json: \"added_tokens\" is no list"};
  for (const Json& item : list->items()) {
    const std::optional<int64_t> id = item.integer("id");
    const std::optional<std::string> content = item.string("content");
    if (!id || *id < 0 || *id > max_token_id || !content) {
      return Error{fmt::format("tokenizer.json: added token {} lacks a usable \"id\" or \"content\"", tokens.size())};
    }
    const auto flag = [&item](std::string_view name, bool fallback) { return item.boolean(name).value_or(fallback); };
    const bool special = flag("special", false);
    tokens.push_back({static_cast<int32_t>(*id), *content, flag("single_word", false), flag("lstrip", false),
                      flag("rstrip", false), flag("normalized", !special), special});
  }
  return tokens;
}

/// The contents of added tokens as texts have them after the normalizer, which is also what the decoder sees.
std::vector<std::string> contents_of(const std::vector<AddedToken>& added, const Normalizer& normalizer) {
  std::vector<std::string> contents;
  for (const AddedToken& token : added) {
    std::string content = token.content;
    if (token.normalized && !normalizer.maps_bytes() && !normalizer.apply(content).ok()) content = token.content;
    contents.push_back(std::move(content));
  }
  return contents;
}

/// The tokens by id: those of the model, then the added ones, which win.
Result<std::vector<TokenEntry>> entries_by_id(const TokenizerFile& file, const std::vector<AddedToken>& added,
                                              const std::vector<std::string>& contents) {
  const size_t count = file.vocabulary.size() + file.pieces.size() + added.size();
  const int64_t limit = std::min(max_token_id, static_cast<int64_t>(count) + max_gap);
  int64_t last = static_cast<int64_t>(file.pieces.size()) - 1;
  if (last > limit) return Error{fmt::format("tokenizer.json: there are {} tokens", file.pieces.size())};
  for (const auto& [text, id] : file.vocabulary) {
    if (id < 0 || id > limit) return Error{fmt::format("tokenizer.json: token \"{}\" has id {}", text, id)};
    last = std::max(last, id);
  }
  for (const AddedToken& token : added) {
    if (token.id > limit)
      return Error{fmt::format("tokenizer.json: added token \"{}\" has id {}", token.content, token.id)};
    last = std::max(last, int64_t{token.id});
  }
  std::vector<TokenEntry> entries(static_cast<size_t>(last + 1));
  for (const auto& [text, id] : file.vocabulary) {
    TokenEntry& entry = entries[static_cast<size_t>(id)];
    if (!entry.text.empty()) {
      return Error{fmt::format("tokenizer.json: tokens \"{}\" and \"{}\" have the same id {}", entry.text, text, id)};
    }
    entry = {text, true, false, false, {}};
  }
  for (size_t id = 0; id < file.pieces.size(); ++id) entries[id] = {file.pieces[id].first, true, false, false, {}};
  for (size_t i = 0; i < added.size(); ++i) {
    const AddedToken& token = added[i];
    TokenEntry& entry = entries[static_cast<size_t>(token.id)];
    entry = {token.content, entry.in_model && entry.text == token.content, token.special, false, contents[i]};
  }
  return entries;
}

std::optional<std::string> configured_token(const Json& config, std::string_view name) {
  const Json* value = config.find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->as_string();
  return value->string("content");
}

/// Llama-like classes of `transformers` let tokenizer_config.json decide about BOS and EOS where it says so.
bool config_decides(const Json& config) {
  const std::string name = config.string("tokenizer_class").value_or("");
  return name.starts_with("Llama") || name.starts_with("CodeLlama") || name.starts_with("Gemma");
}

void override_side(std::vector<int32_t>& side, std::optional<bool> wanted, std::optional<int32_t> id) {
  if (!wanted) return;
  side.clear();
  if (*wanted && id) side.push_back(*id);
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_json(std::string_view tokenizer_json, const Json& config) {
  ASSIGN_OR_RETURN(const TokenizerFile file, read_tokenizer_file(tokenizer_json));
  const Json& json = file.rest;
  ASSIGN_OR_RETURN(const ModelType type, model_type(file));
  PipelineParts parts;
  ASSIGN_OR_RETURN(parts.normalizer, Normalizer::from_json(json.find("normalizer")));
  ASSIGN_OR_RETURN(parts.pre_tokenizer, PreTokenizer::from_json(json.find("pre_tokenizer")));
  ASSIGN_OR_RETURN(parts.decoder, TokenDecoder::from_json(json.find("decoder")));
  const bool byte_level = parts.pre_tokenizer.byte_level() || parts.normalizer.maps_bytes();
  if (byte_level != parts.decoder.byte_level()) {
    return Error{"tokenizer.json: the decoder must be ByteLevel where the text is cut by ByteLevel, and only there"};
  }
  ASSIGN_OR_RETURN(parts.added, read_added(json.find("added_tokens")));
  const std::vector<std::string> contents = contents_of(parts.added, parts.normalizer);
  ASSIGN_OR_RETURN(const std::vector<TokenEntry> entries, entries_by_id(file, parts.added, contents));
  ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::make(entries, parts.decoder, byte_level));
  parts.vocabulary = std::make_unique<const Vocabulary>(std::move(vocabulary));
  ASSIGN_OR_RETURN(parts.model, model_from_json(file, type, *parts.vocabulary));
  ASSIGN_OR_RETURN(parts.frame, frame_from_json(json.find("post_processor")));
  const auto configured_id = [&](std::string_view name) -> std::optional<int32_t> {
    const int32_t id = parts.vocabulary->find_text(configured_token(config, name).value_or(""));
    return id >= 0 ? std::optional(id) : std::nullopt;
  };
  parts.bos = configured_id("bos_token");
  parts.eos = configured_id("eos_token");
  if (config_decides(config)) {
    override_side(parts.frame.before, config.boolean("add_bos_token"), parts.bos);
    override_side(parts.frame.after, config.boolean("add_eos_token"), parts.eos);
  }
  if (!parts.bos && config.is_null() && !parts.frame.before.empty()) parts.bos = parts.frame.before.front();
  parts.description = fmt::format("{}{}, pre-tokenizer {}, {} tokens", byte_level ? "byte-level " : "", name_of(type),
                                  parts.pre_tokenizer.description(), parts.vocabulary->size());
  return make_pipeline(std::move(parts));
}

}  // namespace quern
