#include "server/openapi/answers.h"

#include <initializer_list>
#include <string_view>
#include <utility>

namespace quern {
namespace {

Json kind(std::string_view type) { return Json().set("type", type); }
Json text() { return kind("string"); }
Json number() { return kind("number"); }
Json count() { return kind("integer").set("minimum", 0); }
Json word(std::string_view value) { return Json().set("const", value); }
Json list(Json items) { return kind("array").set("items", std::move(items)); }
Json map(Json values) { return kind("object").set("additionalProperties", std::move(values)); }
Json either(Json a, Json b) { return Json().set("anyOf", Json::Array{std::move(a), std::move(b)}); }
Json or_null(Json schema) { return either(std::move(schema), kind("null")); }

/// An object of these members and no others; names with a '?' need not be there.
Json object(std::initializer_list<std::pair<std::string_view, Json>> members) {
  Json properties(Json::Object{});
  Json::Array required;
  for (auto [name, schema] : members) {
    const bool optional = name.ends_with('?');
    if (optional) name.remove_suffix(1);
    if (!optional) required.emplace_back(name);
    properties.set(name, std::move(schema));
  }
  return kind("object")
      .set("properties", std::move(properties))
      .set("required", std::move(required))
      .set("additionalProperties", false);
}

Json usage() {
  return object({{"prompt_tokens", count()},
                 {"completion_tokens", count()},
                 {"total_tokens", count()},
                 {"prompt_tokens_details?", object({{"cached_tokens", count()}})},
                 {"completion_tokens_details?", object({{"reasoning_tokens", count()}})}});
}
Json pooling_usage() { return object({{"prompt_tokens", count()}, {"total_tokens", count()}}); }

Json token_logprob(bool with_top) {
  Json one = object({{"token", text()}, {"logprob", number()}, {"bytes", or_null(list(count()))}});
  if (!with_top) return one;
  return object({{"token", text()},
                 {"logprob", number()},
                 {"bytes", or_null(list(count()))},
                 {"top_logprobs", list(std::move(one))}});
}

/// Of the tokens of a prompt, by id.
Json prompt_logprobs() {
  return list(or_null(map(object({{"logprob", number()}, {"rank", count()}, {"decoded_token", text()}}))));
}

Json function() { return object({{"name", text()}, {"arguments", text()}}); }

Json chat() {
  Json message =
      object({{"role", word("assistant")},
              {"content", or_null(text())},
              {"refusal", kind("null")},
              {"reasoning?", text()},
              {"reasoning_content?", text()},
              {"tool_calls?", list(object({{"id", text()}, {"type", word("function")}, {"function", function()}}))},
              {"function_call?", function()}});
  Json logprobs = object({{"content", or_null(list(token_logprob(true)))}, {"refusal", kind("null")}});
  Json choice = object({{"index", count()},
                        {"message", std::move(message)},
                        {"logprobs", or_null(std::move(logprobs))},
                        {"finish_reason", text()},
                        {"stop_reason", or_null(either(text(), count()))},
                        {"token_ids?", list(count())}});
  return object({{"id", text()},
                 {"object", word("chat.completion")},
                 {"created", count()},
                 {"model", text()},
                 {"system_fingerprint", text()},
                 {"choices", list(std::move(choice))},
                 {"usage", usage()},
                 {"service_tier?", text()},
                 {"prompt_token_ids?", list(count())},
                 {"prompt_logprobs?", prompt_logprobs()}});
}

Json completion() {
  Json logprobs = object({{"tokens", list(text())},
                          {"token_logprobs", list(or_null(number()))},
                          {"top_logprobs", or_null(list(or_null(map(number()))))},
                          {"text_offset", list(count())}});
  Json choice = object({{"index", count()},
                        {"text", text()},
                        {"logprobs", or_null(std::move(logprobs))},
                        {"finish_reason", text()},
                        {"stop_reason", or_null(either(text(), count()))},
                        {"prompt_logprobs?", prompt_logprobs()},
                        {"prompt_token_ids?", list(count())},
                        {"token_ids?", list(count())}});
  return object({{"id", text()},
                 {"object", word("text_completion")},
                 {"created", count()},
                 {"model", text()},
                 {"system_fingerprint", text()},
                 {"choices", list(std::move(choice))},
                 {"usage", usage()}});
}

Json embeddings() {
  Json one = object({{"object", word("embedding")}, {"index", count()}, {"embedding", either(list(number()), text())}});
  return object(
      {{"object", word("list")}, {"data", list(std::move(one))}, {"model", text()}, {"usage", pooling_usage()}});
}

Json score() {
  Json one = object({{"index", count()}, {"object", word("score")}, {"score", number()}});
  return object({{"id", text()},
                 {"object", word("list")},
                 {"created", count()},
                 {"model", text()},
                 {"data", list(std::move(one))},
                 {"usage", pooling_usage()}});
}

Json rerank() {
  Json one = object({{"index", count()}, {"document?", object({{"text", text()}})}, {"relevance_score", number()}});
  return object({{"id", text()}, {"model", text()}, {"results", list(std::move(one))}, {"usage", pooling_usage()}});
}

Json model() {
  return object({{"id", text()},
                 {"object", word("model")},
                 {"created", count()},
                 {"owned_by", text()},
                 {"root", or_null(text())},
                 {"parent", kind("null")},
                 {"max_model_len", or_null(count())},
                 {"permission", list(kind("object"))},
                 {"task", text()},
                 {"loaded", kind("boolean")}});
}

}  // namespace

Json answer_schema(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::chat: return chat();
    case Endpoint::completions: return completion();
    case Endpoint::embeddings: return embeddings();
    case Endpoint::score: return score();
    case Endpoint::rerank: return rerank();
    case Endpoint::models: return object({{"object", word("list")}, {"data", list(model())}});
    case Endpoint::model: return model();
    case Endpoint::version: return object({{"version", text()}});
    default: return {};
  }
}

}  // namespace quern
