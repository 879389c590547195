#include "server/openapi/operations.h"

#include <algorithm>
#include <array>

#include "server/anthropic/messages.h"
#include "server/llama/requests.h"
#include "server/ollama/embeddings.h"
#include "server/ollama/model_requests.h"
#include "server/ollama/requests.h"
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
void messages(Fields& fields, const TextModel& model) { (void)chat_of_messages(fields, model.options, true); }
void tokens(Fields& fields, const TextModel& model) { (void)tokenize(fields, model); }
void text(Fields& fields, const TextModel& model) { (void)detokenize(fields, model); }
void response(Fields& fields, const TextModel& model) {
  read_model(fields, model.options);
  (void)read_response_request(fields, model.options);
}
void ollama_chat(Fields& fields, const TextModel& model) { (void)read_ollama_chat(fields, model); }
void ollama_generate(Fields& fields, const TextModel& model) { (void)read_ollama_generate(fields, model); }
void ollama_embed(Fields& fields, const TextModel& model) { (void)read_ollama_embed(fields, model); }
void ollama_embeddings(Fields& fields, const TextModel& model) { (void)read_ollama_embeddings(fields, model); }
void ollama_show(Fields& fields, const TextModel& model) { (void)read_ollama_show(fields, model.options); }
void ollama_pull(Fields& fields, const TextModel& model) { (void)read_ollama_pull(fields, model.options); }
void ollama_copy(Fields& fields, const TextModel& model) { (void)read_ollama_copy(fields, model.options); }
void ollama_delete(Fields& fields, const TextModel& model) { (void)read_ollama_delete(fields, model.options); }
void llama_completion(Fields& fields, const TextModel& model) { (void)read_llama_completion(fields, model); }
void infill(Fields& fields, const TextModel& model) { (void)read_infill(fields, model); }
void llama_embedding(Fields& fields, const TextModel& model) { (void)read_llama_embedding(fields, model); }
void llama_template(Fields& fields, const TextModel& model) { (void)apply_template(fields, model); }

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
    {Endpoint::ollama_chat, "The next message of a chat, as Ollama's API has it", ollama_chat, true},
    {Endpoint::ollama_generate, "How a text goes on, as Ollama's API has it", ollama_generate, true},
    {Endpoint::ollama_embed, "Vectors of texts, as Ollama's API has them", ollama_embed},
    {Endpoint::ollama_embeddings, "The vector of a text, as Ollama's older API has it", ollama_embeddings},
    {Endpoint::ollama_version, "The version of Ollama's API"},
    {Endpoint::ollama_tags, "The models of this machine, as Ollama's API has them"},
    {Endpoint::ollama_running, "The models that are loaded, as Ollama's API has them"},
    {Endpoint::ollama_show, "What a model is", ollama_show},
    {Endpoint::ollama_pull, "Brings a model of a hub here, with --allow-model-management", ollama_pull, true},
    {Endpoint::ollama_copy, "Another name for a model, with --allow-model-management", ollama_copy},
    {Endpoint::ollama_delete, "Takes a model away, with --allow-model-management", ollama_delete},
    {Endpoint::ollama_absent, "Not supported"},
    {Endpoint::llama_completion, "How a text goes on, as llama-server's API has it", llama_completion, true},
    {Endpoint::infill, "What stands between two texts, as llama-server's API has it", infill, true},
    {Endpoint::llama_embedding, "Vectors of texts, as llama-server's API has them", llama_embedding},
    {Endpoint::apply_template, "A chat as the text that the model gets", llama_template},
};

}  // namespace

std::span<const Operation> operations() { return kOperations; }

const Operation* operation_of(Endpoint endpoint) {
  const auto* found = std::find_if(std::begin(kOperations), std::end(kOperations),
                                   [&](const Operation& operation) { return operation.endpoint == endpoint; });
  return found == std::end(kOperations) ? nullptr : found;
}

}  // namespace quern
