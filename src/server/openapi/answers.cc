#include "server/openapi/answers.h"

#include "server/openapi/shapes.h"

namespace quern {
namespace {

/// What OpenAI's routes say of a refused request.
Json error() {
  using namespace shapes;  // NOLINT: made of these words
  return object(
      {{"error",
        object({{"message", text()}, {"type", text()}, {"param", or_null(text())}, {"code", or_null(text())}})}});
}

}  // namespace

Json answer_schema(Endpoint endpoint) {
  using namespace shapes;  // NOLINT: made of these words
  switch (endpoint) {
    case Endpoint::chat: return chat_answer();
    case Endpoint::completions: return completion_answer();
    case Endpoint::embeddings: return embeddings_answer();
    case Endpoint::score: return score_answer();
    case Endpoint::rerank: return rerank_answer();
    case Endpoint::models: return object({{"object", word("list")}, {"data", list(model_answer())}});
    case Endpoint::model: return model_answer();
    case Endpoint::responses: return shared("Response");
    case Endpoint::response_tokens:
      return object({{"object", word("response.input_tokens")}, {"input_tokens", count()}});
    case Endpoint::messages: return message_answer();
    case Endpoint::count_tokens: return object({{"input_tokens", count()}});
    case Endpoint::ollama_chat: return ollama_chat_answer();
    case Endpoint::ollama_generate: return ollama_generate_answer();
    case Endpoint::ollama_embed: return ollama_embed_answer();
    case Endpoint::ollama_embeddings: return object({{"embedding", list(number())}});
    case Endpoint::ollama_tags: return ollama_tags_answer();
    case Endpoint::ollama_running: return ollama_running_answer();
    case Endpoint::ollama_show: return ollama_show_answer();
    case Endpoint::ollama_pull: return ollama_pull_answer();
    case Endpoint::ollama_version: return object({{"version", text()}});
    case Endpoint::version: return object({{"version", text()}, {"build?", text()}});
    default: return {};
  }
}

Json stream_schema(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::chat: return chat_chunks();
    case Endpoint::completions: return completion_chunks();
    case Endpoint::responses: return response_events();
    case Endpoint::messages: return message_events();
    case Endpoint::ollama_chat: return ollama_chat_lines();
    case Endpoint::ollama_generate: return ollama_generate_lines();
    case Endpoint::ollama_pull: return ollama_pull_lines();
    default: return {};
  }
}

Json shared_schemas() { return Json().set("Error", error()).set("Response", response_answer()); }

}  // namespace quern
