// What requests in the words of other servers, Ollama and llama-server, have in common: their own defaults, limits that
// OpenAI does not have, and prompts that are written out with their special tokens. Values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/openai/fields.h"
#include "server/openai/generation.h"

namespace quern {

/// What such a server samples with where neither the request nor the model says anything.
struct PeerDefaults {
  double temperature = 0.8;
  int64_t top_k = 40;
  double top_p = 0.95;
  double min_p = 0.05;
};

struct PeerLimits {
  std::optional<int32_t> max_tokens;     // none: until the context is full
  std::string_view name = "max_tokens";  // what the peer calls that
  std::vector<std::string> stops;
};

/// A number of tokens, of which negative ones mean no limit.
std::optional<int32_t> read_peer_tokens(Fields& fields, std::string_view name);
/// Stop strings, as many as a peer allows; empty ones are passed over.
std::vector<std::string> read_peer_stops(Fields& fields, std::string_view name);

/// The fields that `body`, a request in OpenAI's words, leaves open. A model that says how to sample is asked first.
void add_peer_defaults(const PeerDefaults& defaults, const ServerOptions& options, Json& body);

/// The tokens of text that is a whole prompt: what is trusted may spell special tokens.
Checked<std::vector<int32_t>> encode_prompt(const TextModel& model, std::span<const TextPiece> pieces,
                                            bool add_special = true);
Json ids_json(std::span<const int32_t> ids);

/// `body` is one of /v1/completions without limits, its prompt a list of lists of ids.
Checked<Generation> read_peer_completion(const Json& body, PeerLimits limits, const TextModel& model);
/// `body` is one of /v1/chat/completions without limits.
Checked<Generation> read_peer_chat(Json body, PeerLimits limits, const TextModel& model);

/// 2026-11-30T04:00:00.123456Z
std::string time_text(int64_t unix_us);
int64_t unix_time_us();

}  // namespace quern
