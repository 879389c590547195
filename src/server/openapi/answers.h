// What answers look like, as JSON Schemas; tests/conformance/test_openapi.py holds real ones to them. Values.
#pragma once

#include "base/json.h"
#include "server/routes.h"

namespace quern {

/// Of a whole answer; null where nothing is told of it.
Json answer_schema(Endpoint endpoint);
/// Of the data of a stream's events, or of its lines; null where nothing is told of it.
Json stream_schema(Endpoint endpoint);
/// Schemas that others refer to, by name.
Json shared_schemas();

Json chat_answer();
Json chat_chunks();
Json completion_answer();
Json completion_chunks();
Json embeddings_answer();
Json score_answer();
Json rerank_answer();
Json model_answer();
Json response_answer();
Json response_events();
Json message_answer();
Json message_events();
Json ollama_chat_answer();
Json ollama_chat_lines();
Json ollama_generate_answer();
Json ollama_generate_lines();
Json ollama_embed_answer();
Json ollama_tags_answer();
Json ollama_running_answer();
Json ollama_show_answer();
Json ollama_pull_answer();
Json ollama_pull_lines();

}  // namespace quern
