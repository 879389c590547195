// Requests of Ollama's API about models and not about text. Values.
#pragma once

#include <string>
#include <vector>

#include "server/openai/fields.h"
#include "server/options.h"

namespace quern {

struct OllamaModelRequest {
  std::string model;
  std::string destination;  // of a copy
  bool stream = true;       // of a pull: progress is told
  std::vector<std::string> unknown_fields;
};

/// /api/show.
OllamaModelRequest read_ollama_show(Fields& fields, const ServerOptions& options);
/// /api/pull.
OllamaModelRequest read_ollama_pull(Fields& fields, const ServerOptions& options);
/// /api/copy.
OllamaModelRequest read_ollama_copy(Fields& fields, const ServerOptions& options);
/// /api/delete.
OllamaModelRequest read_ollama_delete(Fields& fields, const ServerOptions& options);

}  // namespace quern
