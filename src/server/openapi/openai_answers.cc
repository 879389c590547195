// Answers of OpenAI's routes but for Responses, and of those that vLLM adds.
#include "server/openapi/answers.h"
#include "server/openapi/shapes.h"

namespace quern {
namespace {

using namespace shapes;  // NOLINT: this file is made of these words

Json usage() {
  return object({{"prompt_tokens", count()},
                 {"completion_tokens", count()},
                 {"total_tokens", count()},
                 {"prompt_tokens_details?", object({{"cached_tokens", count()}})},
                 {"completion_tokens_details?", object({{"reasoning_tokens", count()}})}});
}
Json pooling_usage() { return object({{"prompt_tokens", count()}, {"total_tokens", count()}}); }

Json token_logprob() {
  const Json one = object({{"token", text()}, {"logprob", number()}, {"bytes", or_null(list(count()))}});
  return with(one, {{"top_logprobs", list(one)}});
}

/// Of the tokens of a prompt, by id.
Json prompt_logprobs() {
  return list(or_null(map(object({{"logprob", number()}, {"rank", count()}, {"decoded_token", text()}}))));
}

Json chat_logprobs() { return object({{"content", or_null(list(token_logprob()))}, {"refusal", null()}}); }

Json completion_logprobs() {
  return object({{"tokens", list(text())},
                 {"token_logprobs", list(or_null(number()))},
                 {"top_logprobs", or_null(list(or_null(map(number()))))},
                 {"text_offset", list(count())}});
}

Json stop_reason() { return or_null(any_of({text(), count()})); }

/// What a whole answer and a chunk of one have in common.
Json head(std::string_view name, Json choice) {
  return object({{"id", text()},
                 {"object", word(name)},
                 {"created", count()},
                 {"model", text()},
                 {"system_fingerprint", text()},
                 {"choices", list(std::move(choice))}});
}

Json chunks(Json chunk) {
  return any_of({with(std::move(chunk), {{"usage?", or_null(usage())}}), shared("Error")})
      .set("description", "The data of each event; [DONE] is that of the last one");
}

}  // namespace

Json chat_answer() {
  const Json function = object({{"name", text()}, {"arguments", text()}});
  const Json call = object({{"id", text()}, {"type", word("function")}, {"function", function}});
  Json message = object({{"role", word("assistant")},
                         {"content", or_null(text())},
                         {"refusal", null()},
                         {"reasoning?", text()},
                         {"reasoning_content?", text()},
                         {"tool_calls?", list(call)},
                         {"function_call?", function}});
  Json choice = object({{"index", count()},
                        {"message", std::move(message)},
                        {"logprobs", or_null(chat_logprobs())},
                        {"finish_reason", text()},
                        {"stop_reason", stop_reason()},
                        {"token_ids?", list(count())}});
  return with(head("chat.completion", std::move(choice)),
              {{"usage", usage()}, {"prompt_token_ids?", list(count())}, {"prompt_logprobs?", prompt_logprobs()}});
}

Json chat_chunks() {
  const Json function = object({{"name?", text()}, {"arguments", text()}});
  Json call = object({{"index", count()}, {"id?", text()}, {"type?", word("function")}, {"function", function}});
  Json delta = object({{"role?", word("assistant")},
                       {"content?", or_null(text())},
                       {"refusal?", null()},
                       {"reasoning?", text()},
                       {"reasoning_content?", text()},
                       {"tool_calls?", list(std::move(call))},
                       {"function_call?", function}});
  return chunks(head("chat.completion.chunk", object({{"index", count()},
                                                      {"delta", std::move(delta)},
                                                      {"logprobs", or_null(chat_logprobs())},
                                                      {"finish_reason", or_null(text())},
                                                      {"stop_reason?", stop_reason()},
                                                      {"prompt_token_ids?", list(count())},
                                                      {"token_ids?", list(count())}})));
}

Json completion_answer() {
  Json choice = object({{"index", count()},
                        {"text", text()},
                        {"logprobs", or_null(completion_logprobs())},
                        {"finish_reason", text()},
                        {"stop_reason", stop_reason()},
                        {"prompt_logprobs?", prompt_logprobs()},
                        {"prompt_token_ids?", list(count())},
                        {"token_ids?", list(count())}});
  return with(head("text_completion", std::move(choice)), {{"usage", usage()}});
}

Json completion_chunks() {
  return chunks(head("text_completion", object({{"index", count()},
                                                {"text", text()},
                                                {"logprobs", or_null(completion_logprobs())},
                                                {"finish_reason", or_null(text())},
                                                {"stop_reason?", stop_reason()},
                                                {"prompt_token_ids?", list(count())},
                                                {"token_ids?", list(count())}})));
}

Json embeddings_answer() {
  Json one =
      object({{"object", word("embedding")}, {"index", count()}, {"embedding", any_of({list(number()), text()})}});
  return object(
      {{"object", word("list")}, {"data", list(std::move(one))}, {"model", text()}, {"usage", pooling_usage()}});
}

Json score_answer() {
  Json one = object({{"index", count()}, {"object", word("score")}, {"score", number()}});
  return object({{"id", text()},
                 {"object", word("list")},
                 {"created", count()},
                 {"model", text()},
                 {"data", list(std::move(one))},
                 {"usage", pooling_usage()}});
}

Json rerank_answer() {
  Json one = object({{"index", count()}, {"document?", object({{"text", text()}})}, {"relevance_score", number()}});
  return object({{"id", text()}, {"model", text()}, {"results", list(std::move(one))}, {"usage", pooling_usage()}});
}

Json model_answer() {
  return object({{"id", text()},
                 {"object", word("model")},
                 {"created", count()},
                 {"owned_by", text()},
                 {"root", or_null(text())},
                 {"parent", null()},
                 {"max_model_len", or_null(count())},
                 {"permission", list(kind("object"))},
                 {"task", text()},
                 {"loaded", boolean()}});
}

}  // namespace quern
