// GGUF metadata as config.json and generation_config.json.
#include <algorithm>
#include <fmt/format.h>
#include <string_view>

#include "checkpoint/gguf_checkpoint.h"
#include "checkpoint/gguf_translation.h"
#include "checkpoint/wording.h"

namespace quern {
namespace {

/// Files that are no whole models.
Status refuse_other_kinds(const Gguf& gguf) {
  ASSIGN_OR_RETURN(const auto type, gguf.string("general.type"));
  if (type && *type != "model") {
    return gguf.refuse("general.type", fmt::format("is {}, expected a model", quoted(*type)));
  }
  return {};
}

/// How the vectors of a model are made, if it was stored for that.
Result<std::string> pooling_of(const GgufTranslation& translation) {
  constexpr std::string_view names[] = {"", "mean", "cls", "last", "rank"};
  const std::string key = translation.key("pooling_type");
  ASSIGN_OR_RETURN(const auto type, translation.gguf().integer(key));
  if (!type) return std::string();
  if (*type >= 0 && *type < static_cast<int64_t>(std::size(names))) return std::string(names[*type]);
  return translation.gguf().refuse(key, fmt::format("is {}, expected 0 to {}", *type, std::size(names) - 1));
}

}  // namespace

Result<Json> gguf_config(const Gguf& gguf) {
  TRY(refuse_other_kinds(gguf));
  ASSIGN_OR_RETURN(const auto name, gguf.string("general.architecture"));
  if (!name) return gguf.refuse("general.architecture", "is missing");
  const GgufArchitecture* const architecture = find_gguf_architecture(*name);
  if (architecture == nullptr) {
    return Error{fmt::format("{}: the architecture {} is not supported (known: {})", gguf.path(), quoted(*name),
                             list_text(gguf_architectures()))};
  }
  GgufTranslation translation(gguf, *architecture);
  translation.config().set("architectures", Json::Array{architecture->class_name});
  translation.config().set("model_type", architecture->model_type);
  TRY(architecture->translate(translation));
  ASSIGN_OR_RETURN(std::string pooling, pooling_of(translation));
  if (!pooling.empty()) translation.config().set("pooling", std::move(pooling));
  return std::move(translation.config());
}

namespace {

Result<std::optional<int64_t>> token_id(const Gguf& gguf, std::string_view name, int64_t vocab) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
  ASSIGN_OR_RETURN(const auto id, gguf.integer(key));
  if (id && (*id < 0 || *id >= vocab))
    return gguf.refuse(key, fmt::format("is {}, but there are {} tokens", *id, vocab));
  return id;
}

}  // namespace

Result<Json> gguf_generation_config(const Gguf& gguf, int64_t vocab) {
  struct Key {
    std::string_view gguf, name;
  };
  constexpr Key ids[] = {{"bos", "bos_token_id"}, {"padding", "pad_token_id"}};
  constexpr Key numbers[] = {
      {"temp", "temperature"}, {"top_p", "top_p"}, {"min_p", "min_p"}, {"penalty_repeat", "repetition_penalty"}};
  Json config;
  Json::Array ends;
  for (const std::string_view end : {"eos", "eot", "eom"}) {
    ASSIGN_OR_RETURN(const auto id, token_id(gguf, end, vocab));
    if (id && std::find(ends.begin(), ends.end(), Json(*id)) == ends.end()) ends.emplace_back(*id);
  }
  if (ends.size() == 1) config.set("eos_token_id", ends.front());
  if (ends.size() > 1) config.set("eos_token_id", std::move(ends));
  for (const Key& key : ids) {
    ASSIGN_OR_RETURN(const auto id, token_id(gguf, key.gguf, vocab));
    if (id) config.set(key.name, *id);
  }
  for (const Key& key : numbers) {
    ASSIGN_OR_RETURN(const auto number, gguf.number(fmt::format("general.sampling.{}", key.gguf)));
    if (number) config.set(key.name, *number);
  }
  ASSIGN_OR_RETURN(const auto top_k, gguf.integer("general.sampling.top_k"));
  if (top_k) config.set("top_k", *top_k);
  ASSIGN_OR_RETURN(const auto suppressed, gguf.integers("tokenizer.ggml.suppress_tokens"));
  if (suppressed) config.set("suppress_tokens", Json::Array(suppressed->begin(), suppressed->end()));
  return config;
}

}  // namespace quern
