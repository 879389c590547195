#include "text/tool_calls/call_object.h"

#include <cctype>

#include "base/json.h"

namespace quern {
namespace {

constexpr int kMaxDepth = 4;

struct Members {
  std::string name;
  std::string id;
  std::string arguments;  // JSON
  bool passed_on = false;
};

/// Reads one JSON value; "" when it is malformed.
Reading<std::string> read_value(ReplyReader& in) {
  std::string text;
  const bool good = co_await in.json([&text](std::string_view part) { text += part; });
  co_return good ? text : std::string();
}

/// The text of a JSON string; "" for anything else.
std::string text_of(const std::string& json) {
  const auto value = Json::parse(json);
  return value.ok() && value->is_string() ? value->as_string() : std::string();
}

Reading<bool> read_members(ReplyReader& in, CallNames names, int depth, Members& members);

/// The value of one member.
Reading<bool> read_member(ReplyReader& in, CallNames names, int depth, const std::string& key, Members& members) {
  const int first = co_await in.skip_space();
  const bool is_function = key == "function" || key == "function_call";
  if (is_function && first == '{' && depth < kMaxDepth) {
    co_await in.next();
    co_return co_await read_members(in, names, depth + 1, members);
  }
  const bool is_arguments = key == "arguments" || key == "parameters";
  if (is_arguments && first == '{' && !members.name.empty() && !members.passed_on && in.eager()) {
    in.begin_call(members.name, members.id);
    members.passed_on = true;
    co_return co_await in.json([&in](std::string_view part) { in.arguments(part); });
  }
  std::string value = co_await read_value(in);
  if (value.empty()) co_return false;
  if (key == "name" || is_function) {
    members.name = text_of(value);
    co_return names == CallNames::any || find_tool(in.tools(), members.name) != nullptr;
  }
  if (is_arguments) {
    members.arguments = std::move(value);
  } else if (key == "id") {
    members.id = text_of(value);
  } else if (key != "type" && names == CallNames::known) {
    co_return false;
  }
  co_return true;
}

/// After the brace.
Reading<bool> read_members(ReplyReader& in, CallNames names, int depth, Members& members) {
  if (co_await in.skip_space() == '}') {
    co_await in.next();
    co_return true;
  }
  while (true) {
    if (co_await in.skip_space() != '"') co_return false;
    const std::string key = text_of(co_await read_value(in));
    co_await in.skip_space();
    if (!co_await in.take(":")) co_return false;
    if (!co_await read_member(in, names, depth, key, members)) co_return false;
    const int after = co_await in.skip_space();
    if (after != ',' && after != '}') co_return false;
    co_await in.next();
    if (after == '}') co_return true;
  }
}

/// Arguments as the text of an object: they may be missing, or be such a text as a string. "" when they are neither.
std::string as_object(const std::string& json) {
  if (json.empty() || json == "null") return "{}";
  const auto value = Json::parse(json);
  if (!value.ok()) return {};
  if (value->is_object()) return json;
  if (!value->is_string()) return {};
  if (value->as_string().empty()) return "{}";
  const auto inner = Json::parse(value->as_string());
  return inner.ok() && inner->is_object() ? value->as_string() : std::string();
}

}  // namespace

Reading<bool> read_call_object(ReplyReader& in, CallNames names, bool opened) {
  if (!opened && !co_await in.take("{")) co_return false;
  Members members;
  if (!co_await read_members(in, names, 0, members)) co_return false;
  if (members.passed_on) {
    in.end_call();
    co_return true;
  }
  const std::string arguments = as_object(members.arguments);
  if (members.name.empty() || arguments.empty()) co_return false;
  in.call(std::move(members.name), arguments, std::move(members.id));
  co_return true;
}

Reading<bool> read_call_array(ReplyReader& in, CallNames names, bool opened) {
  if (!opened && !co_await in.take("[")) co_return false;
  while (true) {
    co_await in.skip_space();
    if (!co_await read_call_object(in, names)) co_return false;
    const int after = co_await in.skip_space();
    if (after == ']') co_await in.next();
    if (after != ',') co_return true;
    co_await in.next();
  }
}

Reading<bool> read_arguments(ReplyReader& in) {
  const int first = co_await in.skip_space();
  if (first == '{') co_return co_await in.json([&in](std::string_view part) { in.arguments(part); });
  const bool marker = first == '<' || first == '`' || first == static_cast<unsigned char>(kSpecialMark);
  if (marker) in.arguments("{}");
  co_return marker;
}

bool in_name(int c) {
  return c >= 0 && c != 0xFF && (std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == ':' || c >= 0x80);
}

Reading<std::string> read_name(ReplyReader& in) {
  std::string name;
  for (int c = co_await in.peek(); in_name(c); c = co_await in.peek()) {
    name += static_cast<char>(c);
    co_await in.next();
  }
  co_return name;
}

}  // namespace quern
