// ToolUse: the tools that a chat request offers and what it wants of them. Values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/openai/fields.h"
#include "text/reply/tool.h"
#include "text/tool_calls/dialect.h"

namespace quern {

struct TextModel;

struct ToolUse {
  enum class Choice : uint8_t {
    none,       // no tools, or no calls wanted
    automatic,  // the model decides
    required,   // at least one call
    named,      // a call of this one tool
  };
  Choice choice = Choice::none;
  Json offered;             // what the chat template gets; null: no tools
  std::vector<Tool> tools;  // which may be called
  bool parallel = true;     // several calls in one answer
  bool legacy = false;      // asked for as `functions`, answered as `function_call`

  bool wanted() const { return choice != Choice::none; }
};

/// Reads `tools`, `tool_choice` and `parallel_tool_calls`, or `functions` and `function_call`.
ToolUse read_tool_use(Fields& fields, const TextModel& model);

/// The id of a call, number `number` of the conversation. What the model spelled is kept where it has the right form.
std::string call_id(CallIds ids, std::string_view given, std::string_view function, int64_t number);

}  // namespace quern
