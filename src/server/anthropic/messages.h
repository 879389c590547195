// Requests of Anthropic's Messages API -> chat requests, which are read on from there. Values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/openai/errors.h"
#include "server/openai/generation.h"

namespace quern {

/// A body of /v1/messages as one of /v1/chat/completions.
struct MessagesRequest {
  Json chat;
  std::vector<std::string> passed_over;  // tools that run at the vendor
};
/// What no model here can do is refused by name; hints that change nothing, as `cache_control`, are passed over.
Checked<MessagesRequest> chat_of_messages(Fields& fields, const ServerOptions& options, bool needs_max_tokens);

Checked<Generation> parse_messages(std::string_view body, const TextModel& model);
/// The body of the answer of /v1/messages/count_tokens.
Checked<std::string> count_message_tokens(Fields& fields, const TextModel& model);

}  // namespace quern
