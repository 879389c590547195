// Thinking: how a family of models marks its reasoning. Immutable; any thread.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"

namespace quern {

struct Thinking {
  std::string_view begin;
  std::string_view end;
  std::vector<std::string_view> names;  // as vLLM calls its parsers
};

/// By name; an error lists the known ones.
Result<const Thinking*> find_thinking(std::string_view name);
/// The one whose marks a chat template contains; nullptr when there is none.
const Thinking* detect_thinking(std::string_view chat_template);

}  // namespace quern
