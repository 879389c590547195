// Messages of Ollama's chats -> messages of OpenAI's. Values.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "server/openai/errors.h"

namespace quern {

class OllamaMessages {
 public:
  std::optional<ApiError> add(const Json& message, const std::string& path);
  Json::Array take() { return std::move(messages_); }

 private:
  std::optional<ApiError> add_calls(const Json& calls, const std::string& path, Json& out);
  std::string call_of_result(const Json& message);

  Json::Array messages_;
  std::vector<std::pair<std::string, std::string>> open_;  // calls without a result: id and function
  int calls_ = 0;
};

/// What is said where images are.
ApiError no_images();

}  // namespace quern
