// Ollama's /api/embed and the older /api/embeddings. Values.
#pragma once

#include <string_view>

#include "server/openai/pooling.h"

namespace quern {

Checked<PoolingCall> parse_ollama_embed(std::string_view body, const TextModel& model);
Checked<PoolingCall> read_ollama_embed(Fields& fields, const TextModel& model);
/// One text, and its vector as the model makes it.
Checked<PoolingCall> parse_ollama_embeddings(std::string_view body, const TextModel& model);
Checked<PoolingCall> read_ollama_embeddings(Fields& fields, const TextModel& model);

}  // namespace quern
