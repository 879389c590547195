#include "text/tool_calls/untyped.h"

#include <algorithm>
#include <cmath>

namespace quern {
namespace {

bool is_of_type(const Json& value, std::string_view type) {
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_bool();
  if (type == "null") return value.is_null();
  if (type == "number") return value.is_number();
  if (type == "integer") return value.is_number() && std::floor(value.as_number()) == value.as_number();
  if (type == "array") return value.is_array();
  return type != "object" || value.is_object();
}

bool allows(const Json& schema, const Json& value) {
  if (const Json* type = schema.present("type")) {
    if (type->is_string()) return is_of_type(value, type->as_string());
    if (!type->is_array()) return true;
    return std::any_of(type->items().begin(), type->items().end(),
                       [&](const Json& one) { return one.is_string() && is_of_type(value, one.as_string()); });
  }
  if (const Json* values = schema.present("enum"); values != nullptr && values->is_array()) {
    return std::find(values->items().begin(), values->items().end(), value) != values->items().end();
  }
  for (const std::string_view key : {"anyOf", "oneOf"}) {
    const Json* choices = schema.present(key);
    if (choices == nullptr || !choices->is_array()) continue;
    return std::any_of(choices->items().begin(), choices->items().end(),
                       [&](const Json& one) { return allows(one, value); });
  }
  return true;
}

/// Nothing but a string is allowed: its text need not be read to the end.
bool is_text(const Json* schema) { return schema != nullptr && schema->string("type") == "string"; }

std::string quoted(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

}  // namespace

std::string typed_value(const Json* schema, std::string_view text) {
  if (is_text(schema)) return quoted(text);
  std::string trimmed(text);
  trimmed.erase(0, trimmed.find_first_not_of(" \n\t\r"));
  trimmed.erase(trimmed.find_last_not_of(" \n\t\r") + 1);
  if (trimmed == "True") trimmed = "true";
  if (trimmed == "False") trimmed = "false";
  if (trimmed == "None") trimmed = "null";
  const auto value = Json::parse(trimmed);
  if (value.ok() && (schema == nullptr || allows(*schema, *value))) return trimmed;
  return quoted(text);
}

UntypedArguments::UntypedArguments(ReplyReader& in, std::string_view function) : in_(in) {
  const Tool* tool = find_tool(in.tools(), function);
  if (tool != nullptr) properties_ = tool->parameters.present("properties");
}

const Json* UntypedArguments::schema_of(std::string_view key) const {
  return properties_ == nullptr ? nullptr : properties_->present(key);
}

Reading<bool> UntypedArguments::read(std::string key, std::vector<Sought> ends) {
  in_.arguments((begun_ ? ", " : "{") + quoted(key) + ": ");
  begun_ = true;
  const Json* schema = schema_of(key);
  if (is_text(schema)) {
    in_.arguments("\"");
    const int end = co_await in_.until(ends, [this](std::string_view text) { in_.argument_text(text); });
    in_.arguments("\"");
    co_return end >= 0;
  }
  std::string text;
  const int end = co_await in_.until(ends, [&text](std::string_view part) { text += part; });
  in_.arguments(typed_value(schema, text));
  co_return end >= 0;
}

void UntypedArguments::end() {
  in_.arguments(begun_ ? "}" : "{}");
  in_.end_call();
}

}  // namespace quern
