#include "text/reply/call_rendering.h"

#include <string>

namespace quern {
namespace {

constexpr std::string_view kArguments = R"({"probe_key": "probe_value"})";
constexpr std::string_view kTools =
    R"([{"type": "function", "function": {"name": "probe_tool", "description": "d", "parameters": {"type": "object",
        "properties": {"probe_key": {"type": "string", "description": "d"}}, "required": ["probe_key"]}}}])";

/// The text of a conversation with one call in it; "" when the template refuses it.
std::string try_message(const ChatTemplate& chat_template, Json arguments, Json content) {
  Json function;
  function.set("name", "probe_tool").set("arguments", std::move(arguments));
  Json call;
  call.set("id", "abcdefgh1").set("type", "function").set("function", std::move(function));
  Json asks;
  asks.set("role", "user").set("content", "hi");
  Json answers;
  answers.set("role", "assistant").set("content", std::move(content)).set("tool_calls", Json::Array{std::move(call)});
  Json variables;
  variables.set("messages", Json::Array{std::move(asks), std::move(answers)});
  variables.set("tools", Json::parse(kTools).value()).set("add_generation_prompt", false);
  variables.set("bos_token", "").set("eos_token", "");
  TemplateLimits limits;  // a real template takes a thousandth of this
  limits.max_operations = 1'000'000;
  limits.max_time_us = 200'000;
  const auto pieces = chat_template.render(variables, {}, limits, 0);
  return pieces.ok() ? join(*pieces) : std::string();
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

CallRendering try_calls(const ChatTemplate& chat_template) {
  CallRendering found;
  found.tools = has(chat_template.source_for_tools(), "tools");
  found.reads_thinking =
      has(chat_template.source(), "message.thinking") || has(chat_template.source(), "message['thinking']");
  const Json object = Json::parse(kArguments).value();
  const std::string with_object = try_message(chat_template, object, "");
  found.takes_text = has(try_message(chat_template, kArguments, ""), kArguments);
  found.takes_objects = !found.takes_text || (has(with_object, "probe_value") && !has(with_object, "'probe_key'"));
  const std::string with_null = try_message(chat_template, found.takes_objects ? object : Json(kArguments), nullptr);
  found.takes_no_content = has(with_null, "probe_value") && !has(with_null, "None");
  return found;
}

}  // namespace quern
