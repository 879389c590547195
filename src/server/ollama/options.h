// What Ollama's requests say besides their text, in OpenAI's words: options, format, thinking, keep_alive. One call's
// thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/llama/peer.h"
#include "server/openai/fields.h"
#include "server/openai/generation.h"

namespace quern {

/// What requests of all routes share.
struct OllamaCommon {
  std::string model;   // as the client called it
  std::string served;  // the name that it is served under
  std::optional<double> keep_alive_s;
  PeerLimits limits;
};

/// Reads the model, keep_alive and what changes nothing here.
OllamaCommon read_ollama_common(Fields& fields, const ServerOptions& server);

/// Adds what options, format, think, stream and logprobs ask for to `body`, a request in OpenAI's words.
/// `completion`: it is one of /v1/completions.
void read_ollama_options(Fields& fields, const TextModel& model, bool completion, OllamaCommon& common, Json& body);

/// Seconds, as a number or as "5m" or "1h30m"; negative: for ever. Nothing: no duration.
std::optional<double> ollama_duration(const Json& value);

}  // namespace quern
