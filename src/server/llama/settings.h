// The sampling settings of llama-server: reading them from requests, and telling them. Values.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "server/llama/peer.h"
#include "server/openai/fields.h"
#include "server/openai/generation.h"

namespace quern {

inline constexpr PeerDefaults llama_defaults{};

/// Reads how to sample into `body`, a request in OpenAI's words. What would change the answer and does not exist here
/// is refused; what only changes how long it takes is named in `passed_over`.
void read_llama_sampling(Fields& fields, const TextModel& model, Json& body, std::vector<std::string>& passed_over);

/// As `generation_settings` has it; `max_tokens` -1: no limit.
Json llama_settings(const AnswerParams& params, int64_t max_tokens);
/// The same of a request that says nothing.
Json llama_default_settings(const TextModel& model);

}  // namespace quern
