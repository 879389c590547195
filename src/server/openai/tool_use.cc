#include "server/openai/tool_use.h"

#include <algorithm>
#include <fmt/format.h>
#include <random>

#include "server/openai/generation.h"

namespace quern {
namespace {

constexpr size_t kMaxTools = 1024;
constexpr size_t kMaxNameBytes = 64;

bool is_alphanumeric(char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) { return is_alphanumeric(c) || c == '_' || c == '-'; });
}

std::string random_name(size_t length) {
  static constexpr std::string_view letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  thread_local std::mt19937_64 engine{std::random_device{}()};
  std::uniform_int_distribution<size_t> pick(0, letters.size() - 1);
  std::string name;
  for (size_t i = 0; i < length; ++i) name += letters[pick(engine)];
  return name;
}

/// One function, by its own object.
void add_function(Fields& fields, const Json& function, const std::string& path, ToolUse& use) {
  Fields members(function, path);
  const auto name = members.string("name");
  const Json* parameters = members.object("parameters");
  members.ignore(Fields::Kind::string, {"description"});
  members.ignore(Fields::Kind::boolean, {"strict"});
  if (!members.failed() && !name)
    members.invalid("name", "missing_required_parameter", fmt::format("Missing required parameter: '{}name'.", path));
  if (!members.failed() && !is_name(*name)) {
    members.invalid(
        "name", "invalid_value",
        fmt::format("Invalid '{}name': a name has 1 to {} letters, digits, '_' and '-'.", path, kMaxNameBytes));
  }
  if (!members.failed() && find_tool(use.tools, *name) != nullptr)
    members.invalid("name", "invalid_value", fmt::format("Invalid '{}name': two tools are called '{}'.", path, *name));
  if (members.failed()) return fields.fail(*members.error());
  use.tools.push_back({*name, parameters == nullptr ? Json() : *parameters});
  Json offered = function;
  if (parameters == nullptr) offered.set("parameters", Json::parse(R"({"type":"object","properties":{}})").value());
  if (!function.has("description")) offered.set("description", "");
  if (use.offered.is_null()) use.offered = Json(Json::Array{});
  use.offered.items().push_back(Json().set("type", "function").set("function", std::move(offered)));
}

void read_tools(Fields& fields, const Json::Array& tools, ToolUse& use) {
  for (size_t i = 0; i < tools.size() && !fields.failed(); ++i) {
    const std::string path = fmt::format("tools[{}].", i);
    if (!tools[i].is_object()) return fields.wrong_kind("tools", "objects", tools[i]);
    Fields members(tools[i], path);
    const auto type = members.string("type");
    if (type && *type != "function") {
      return fields.fail(unsupported(
          path + "type", fmt::format("Unsupported parameter: tools of type '{}' are not supported by this server.",
                                     type->substr(0, 64))));
    }
    const Json* function = members.object("function");
    if (!members.failed() && function == nullptr) {
      members.invalid("function", "missing_required_parameter",
                      fmt::format("Missing required parameter: '{}function'.", path));
    }
    if (members.failed()) return fields.fail(*members.error());
    add_function(fields, *function, path + "function.", use);
  }
}

void read_functions(Fields& fields, const Json::Array& functions, ToolUse& use) {
  use.legacy = true;
  use.parallel = false;
  for (size_t i = 0; i < functions.size() && !fields.failed(); ++i) {
    if (!functions[i].is_object()) return fields.wrong_kind("functions", "objects", functions[i]);
    add_function(fields, functions[i], fmt::format("functions[{}].", i), use);
  }
}

/// Only the tool of that name may be called.
void choose(Fields& fields, std::string_view field, const std::optional<std::string>& name, ToolUse& use) {
  const Tool* tool = name ? find_tool(use.tools, *name) : nullptr;
  if (tool == nullptr) {
    return fields.invalid(field, "invalid_value",
                          fmt::format("Invalid '{}': it must name one of the tools that are given.", field));
  }
  use.choice = ToolUse::Choice::named;
  use.tools = {*tool};
}

void choose_allowed(Fields& fields, const Json& allowed, ToolUse& use) {
  Fields members(allowed, "tool_choice.allowed_tools.");
  const auto mode = members.choice("mode", {"auto", "required"});
  const Json::Array* list = members.array("tools", kMaxTools);
  if (members.failed()) return fields.fail(*members.error());
  std::vector<Tool> kept;
  for (const Json& one : list == nullptr ? Json::Array() : *list) {
    const Json* function = one.present("function");
    const auto name = function == nullptr ? one.string("name") : function->string("name");
    const Tool* tool = name ? find_tool(use.tools, *name) : nullptr;
    if (tool == nullptr) {
      return fields.invalid("tool_choice", "invalid_value",
                            "Invalid 'tool_choice': 'allowed_tools' must name tools that are given.");
    }
    kept.push_back(*tool);
  }
  use.tools = std::move(kept);
  use.choice = use.tools.empty()     ? ToolUse::Choice::none
               : *mode == "required" ? ToolUse::Choice::required
                                     : ToolUse::Choice::automatic;
}

void read_choice(Fields& fields, std::string_view field, ToolUse& use) {
  const Json* choice = fields.one_of(field, {Fields::Kind::string, Fields::Kind::object});
  if (!use.tools.empty()) use.choice = ToolUse::Choice::automatic;
  if (choice == nullptr) return;
  const std::string word = choice->is_string() ? choice->as_string() : "";
  if (use.tools.empty()) {
    if (word == "none" || word == "auto") return;
    return fields.invalid(field, "invalid_value",
                          fmt::format("The '{}' parameter is only allowed when tools are given.", field));
  }
  if (choice->is_object()) {
    if (const Json* allowed = choice->present("allowed_tools"); allowed != nullptr && allowed->is_object())
      return choose_allowed(fields, *allowed, use);
    const Json* function = choice->present("function");
    return choose(fields, field, function == nullptr ? choice->string("name") : function->string("name"), use);
  }
  if (word == "none") {
    use.choice = ToolUse::Choice::none;
  } else if (word == "required") {
    use.choice = ToolUse::Choice::required;
  } else if (word != "auto") {
    fields.invalid(
        field, "invalid_value",
        fmt::format("Invalid value for '{}': '{}'. Supported values are: none, auto, required, and an object "
                    "that names a tool.",
                    field, word.substr(0, 64)));
  }
}

}  // namespace

ToolUse read_tool_use(Fields& fields, const TextModel& model) {
  ToolUse use;
  const Json::Array* tools = fields.array("tools", kMaxTools);
  const Json::Array* functions = fields.array("functions", kMaxTools);
  const bool legacy = functions != nullptr && !functions->empty();
  if (tools != nullptr && !tools->empty()) {
    read_tools(fields, *tools, use);
  } else if (legacy) {
    read_functions(fields, *functions, use);
  }
  read_choice(fields, "tool_choice", use);
  if (legacy && use.legacy) {
    read_choice(fields, "function_call", use);
  } else {
    fields.one_of("function_call", {Fields::Kind::string, Fields::Kind::object});
  }
  if (const auto parallel = fields.boolean("parallel_tool_calls")) use.parallel = use.parallel && *parallel;
  if (fields.failed() || use.tools.empty()) return use;
  const std::string_view field = use.legacy ? "functions" : "tools";
  if (model.options.reply_format.dialect() == nullptr) {
    fields.fail(unsupported(std::string(field),
                            fmt::format("Unsupported parameter: '{}' needs a server with a tool-call parser.", field)));
  } else if (model.chat_template && !model.calls.tools) {
    fields.fail(unsupported(
        std::string(field),
        fmt::format("Unsupported parameter: the chat template of this model has no place for '{}'.", field)));
  }
  const bool forced = use.choice == ToolUse::Choice::required || use.choice == ToolUse::Choice::named;
  if (const Dialect* dialect = model.options.reply_format.dialect();
      forced && dialect != nullptr && !dialect->grammar) {
    fields.fail(unsupported(
        "tool_choice",
        fmt::format("Unsupported parameter: calls in the form '{}' cannot be forced; say auto.", dialect->name)));
  }
  if (use.choice == ToolUse::Choice::none) use.offered = Json();
  return use;
}

std::string call_id(CallIds ids, std::string_view given, std::string_view function, int64_t number) {
  switch (ids) {
    case CallIds::openai: break;
    case CallIds::nine:
      if (given.size() == 9 && std::all_of(given.begin(), given.end(), is_alphanumeric)) return std::string(given);
      return random_name(9);
    case CallIds::counted:
      if (given.starts_with("functions.")) return std::string(given);
      return fmt::format("functions.{}:{}", function, number);
  }
  return "call_" + random_name(24);
}

}  // namespace quern
