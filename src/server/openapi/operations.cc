#include "server/openapi/operations.h"

#include <algorithm>
#include <array>

#include "server/anthropic/messages.h"
#include "server/openai/pooling.h"
#include "server/openai/tokens.h"
#include "server/responses/request.h"

namespace quern {
namespace {

void chat(Fields& fields, const TextModel& model) { (void)read_chat(fields, model); }
void completion(Fields& fields, const TextModel& model) { (void)read_completion(fields, model); }
void embeddings(Fields& fields, const TextModel& model) { (void)read_embeddings(fields, model); }
void score(Fields& fields, const TextModel& model) { (void)read_score(fields, model); }
void rerank(Fields& fields, const TextModel& model) { (void)read_rerank(fields, model); }
void messages(Fields& fields, const TextModel&) { (void)chat_of_messages(fields, true); }
void tokens(Fields& fields, const TextModel& model) { (void)tokenize(fields, model); }
void text(Fields& fields, const TextModel& model) { (void)detokenize(fields, model); }
void response(Fields& fields, const TextModel& model) {
  read_model(fields, model.options);
  (void)read_response_request(fields, model.options);
}

constexpr Operation kOperations[] = {
    {Endpoint::root, "A page to chat with, or a few lines about the server"},
    {Endpoint::ping, "Whether the server answers requests"},
    {Endpoint::live, "Whether the process works"},
    {Endpoint::health, "Whether the server answers requests"},
    {Endpoint::version, "The version of the server"},
    {Endpoint::metrics, "Figures for Prometheus"},
    {Endpoint::models, "The models that are served"},
    {Endpoint::model, "A model that is served"},
    {Endpoint::chat, "The next message of a chat", chat, true},
    {Endpoint::completions, "How a text goes on", completion, true},
    {Endpoint::embeddings, "Vectors of texts", embeddings},
    {Endpoint::score, "How well pairs of texts fit", score},
    {Endpoint::rerank, "Documents in the order in which they fit a query", rerank},
    {Endpoint::messages, "The next message of a chat, as Anthropic's API has it", messages, true},
    {Endpoint::count_tokens, "The tokens of such a chat", messages},
    {Endpoint::responses, "The next items of a conversation", response, true},
    {Endpoint::response_tokens, "The tokens of such a conversation", response},
    {Endpoint::stored_response, "An answer that has been kept"},
    {Endpoint::tokenize, "The tokens of a text or a chat", tokens},
    {Endpoint::detokenize, "The text of tokens", text},
    {Endpoint::tokenizer_info, "What the tokenizer is"},
    {Endpoint::openapi, "This document"},
};

}  // namespace

std::span<const Operation> operations() { return kOperations; }

const Operation* operation_of(Endpoint endpoint) {
  const auto* found = std::find_if(std::begin(kOperations), std::end(kOperations),
                                   [&](const Operation& operation) { return operation.endpoint == endpoint; });
  return found == std::end(kOperations) ? nullptr : found;
}

}  // namespace quern
