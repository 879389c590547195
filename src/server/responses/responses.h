// Requests of the Responses API -> chat requests, which are read on from there; and answers that are asked for again.
// Values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "net/http.h"
#include "server/openai/errors.h"
#include "server/openai/generation.h"
#include "server/responses/response_store.h"

namespace quern {

/// Where answers are kept, and who asks: "" for everybody.
struct ResponseShelf {
  std::shared_ptr<ResponseStore> store;
  std::string owner;
};

/// What the answer of one request needs besides its text.
struct ResponsePlan {
  Json object;  // the response object, but for what the answer decides
  std::string id;
  bool logprobs = false;
  bool kept = true;
  ResponseShelf shelf;
  std::vector<StoredResponse::Text> items;  // of the conversation so far, if it is kept
};

Checked<Generation> parse_responses(std::string_view body, const TextModel& model, const ResponseShelf& shelf);
/// The body of the answer of /v1/responses/input_tokens; fields that nobody knows are put into `unknown_fields`.
Checked<std::string> count_response_tokens(std::string_view body, const TextModel& model, const ResponseShelf& shelf,
                                           std::vector<std::string>& unknown_fields);

/// The answers of /v1/responses/{id} and what is below it; `path` is one of these.
Checked<std::string> stored_response(const HttpRequest& request, std::string_view path, const ResponseShelf& shelf);

}  // namespace quern
