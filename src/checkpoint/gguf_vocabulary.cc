// The vocabulary of a GGUF file: read whole, every length, type and id checked.
#include <fmt/format.h>
#include <string_view>

#include "checkpoint/gguf_checkpoint.h"

namespace quern {
namespace {

constexpr size_t longest_token = 65535;
constexpr size_t longest_template = 1 << 20;
constexpr int64_t last_token_type = 6;

std::string key(std::string_view name) { return fmt::format("tokenizer.ggml.{}", name); }

Status read_tokens(const Gguf& gguf, StoredVocabulary& vocabulary) {
  ASSIGN_OR_RETURN(auto tokens, gguf.strings(key("tokens")));
  if (!tokens || tokens->empty()) return gguf.refuse(key("tokens"), "is missing or empty");
  vocabulary.tokens = std::move(*tokens);
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const size_t length = vocabulary.tokens[i].size();
    if (length > longest_token) return gguf.refuse(key("tokens"), fmt::format("has {} bytes in token {}", length, i));
  }
  const StoredTensor* embedding = gguf.find_tensor("token_embd.weight");
  if (embedding != nullptr && embedding->shape.front() != static_cast<int64_t>(vocabulary.tokens.size())) {
    return gguf.refuse(key("tokens"), fmt::format("has {} tokens, but the embedding has {} rows",
                                                  vocabulary.tokens.size(), embedding->shape.front()));
  }
  return {};
}

Status read_tables(const Gguf& gguf, StoredVocabulary& vocabulary) {
  const size_t count = vocabulary.tokens.size();
  ASSIGN_OR_RETURN(auto scores, gguf.floats(key("scores")));
  if (scores) vocabulary.scores = std::move(*scores);
  if (scores && vocabulary.scores.size() != count) {
    return gguf.refuse(key("scores"), fmt::format("has {} entries for {} tokens", vocabulary.scores.size(), count));
  }
  ASSIGN_OR_RETURN(const auto types, gguf.integers(key("token_type")));
  if (types && types->size() != count) {
    return gguf.refuse(key("token_type"), fmt::format("has {} entries for {} tokens", types->size(), count));
  }
  for (const int64_t type : types.value_or(std::vector<int64_t>())) {
    if (type < 0 || type > last_token_type) return gguf.refuse(key("token_type"), fmt::format("holds {}", type));
    vocabulary.types.push_back(static_cast<int32_t>(type));
  }
  ASSIGN_OR_RETURN(auto merges, gguf.strings(key("merges")));
  if (merges) vocabulary.merges = std::move(*merges);
  for (size_t i = 0; i < vocabulary.merges.size(); ++i) {
    const std::string& merge = vocabulary.merges[i];
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos || space + 1 == merge.size()) {
      return gguf.refuse(key("merges"), fmt::format("has an entry {} that is not two pieces and a space", i));
    }
  }
  return {};
}

Status read_ids(const Gguf& gguf, StoredVocabulary& vocabulary) {
  struct Id {
    std::string_view name;
    std::optional<int32_t>* id;
  };
  const Id ids[] = {{"bos", &vocabulary.bos},
                    {"eos", &vocabulary.eos},
                    {"eot", &vocabulary.eot},
                    {"eom", &vocabulary.eom},
                    {"unknown", &vocabulary.unknown},
                    {"padding", &vocabulary.padding},
                    {"cls", &vocabulary.cls},
                    {"mask", &vocabulary.mask},
                    {"seperator", &vocabulary.separator},  // the format's own spelling
                    {"prefix", &vocabulary.fim_prefix},    // older names of the three after them
                    {"suffix", &vocabulary.fim_suffix},
                    {"middle", &vocabulary.fim_middle},
                    {"fim_pre", &vocabulary.fim_prefix},
                    {"fim_suf", &vocabulary.fim_suffix},
                    {"fim_mid", &vocabulary.fim_middle}};
  for (const Id& id : ids) {
    const std::string name = key(fmt::format("{}_token_id", id.name));
    ASSIGN_OR_RETURN(const auto value, gguf.integer(name));
    if (!value) continue;
    if (*value < 0 || *value >= static_cast<int64_t>(vocabulary.tokens.size())) {
      return gguf.refuse(name, fmt::format("is {}, but there are {} tokens", *value, vocabulary.tokens.size()));
    }
    *id.id = static_cast<int32_t>(*value);
  }
  return {};
}

Status read_flags(const Gguf& gguf, StoredVocabulary& vocabulary) {
  struct Flag {
    std::string_view name;
    std::optional<bool>* value;
  };
  const Flag flags[] = {{"add_bos_token", &vocabulary.add_bos},
                        {"add_eos_token", &vocabulary.add_eos},
                        {"add_sep_token", &vocabulary.add_separator},
                        {"add_space_prefix", &vocabulary.add_space_prefix},
                        {"remove_extra_whitespaces", &vocabulary.remove_extra_spaces},
                        {"normalizer.lowercase", &vocabulary.lowercase},
                        {"normalizer.strip_accents", &vocabulary.strip_accents}};
  for (const Flag& flag : flags) {
    ASSIGN_OR_RETURN(*flag.value, gguf.boolean(key(flag.name)));
  }
  return {};
}

Result<std::string> read_template(const Gguf& gguf, std::string_view name) {
  ASSIGN_OR_RETURN(const auto text, gguf.string(name));
  if (text.value_or("").size() <= longest_template) return text.value_or("");
  return gguf.refuse(std::string(name),
                     fmt::format("has {} bytes, more than the {} allowed", text->size(), longest_template));
}

Status read_templates(const Gguf& gguf, StoredVocabulary& vocabulary) {
  constexpr std::string_view before_names = "tokenizer.chat_template.";
  ASSIGN_OR_RETURN(vocabulary.chat_template, read_template(gguf, "tokenizer.chat_template"));
  for (const std::string_view name : gguf.keys()) {
    if (!name.starts_with(before_names)) continue;
    ASSIGN_OR_RETURN(std::string text, read_template(gguf, name));
    if (!text.empty()) vocabulary.named_templates.emplace_back(name.substr(before_names.size()), std::move(text));
  }
  return {};
}

}  // namespace

Result<std::optional<StoredVocabulary>> gguf_vocabulary(const Gguf& gguf) {
  StoredVocabulary vocabulary;
  ASSIGN_OR_RETURN(const auto model, gguf.string(key("model")));
  if (!model || *model == "none" || *model == "no_vocab") return std::optional<StoredVocabulary>();
  vocabulary.model = *model;
  ASSIGN_OR_RETURN(const auto pre, gguf.string(key("pre")));
  vocabulary.pre = pre.value_or("");
  TRY(read_templates(gguf, vocabulary));
  TRY(read_tokens(gguf, vocabulary));
  TRY(read_tables(gguf, vocabulary));
  TRY(read_ids(gguf, vocabulary));
  ASSIGN_OR_RETURN(const auto general_name, gguf.string("general.name"));
  vocabulary.name = general_name.value_or("");
  ASSIGN_OR_RETURN(const auto charsmap, gguf.integers(key("precompiled_charsmap")));
  for (const int64_t byte : charsmap.value_or(std::vector<int64_t>())) vocabulary.charsmap += static_cast<char>(byte);
  TRY(read_flags(gguf, vocabulary));
  return std::optional(std::move(vocabulary));
}

}  // namespace quern
