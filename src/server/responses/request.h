// ResponseRequest: what a body of /v1/responses says, checked field by field. Values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/openai/fields.h"
#include "server/openai/generation.h"

namespace quern {

struct ResponseRequest {
  Json chat;    // a body of /v1/chat/completions that asks for the same, without its messages
  Json object;  // the members of the response object that repeat the request
  std::string instructions;
  Json input;  // null: none
  std::optional<std::string> previous;
  bool kept = true;
  bool logprobs = false;
  std::vector<std::string> passed_over;  // tools that cannot run here
};

/// Reads all fields but `model`.
ResponseRequest read_response_request(Fields& fields, const ServerOptions& options);

}  // namespace quern
