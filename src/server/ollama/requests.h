// Requests of Ollama's /api/chat and /api/generate -> generations. Values.
#pragma once

#include <string_view>

#include "server/openai/errors.h"
#include "server/openai/generation.h"

namespace quern {

/// Without messages the answer is that the model is loaded.
Checked<Generation> parse_ollama_chat(std::string_view body, const TextModel& model);
Checked<Generation> read_ollama_chat(Fields& fields, const TextModel& model);
/// Without a prompt, too.
Checked<Generation> parse_ollama_generate(std::string_view body, const TextModel& model);
Checked<Generation> read_ollama_generate(Fields& fields, const TextModel& model);

}  // namespace quern
