#include "base/toml.h"

#include <fmt/format.h>
#include <string>
#include <utility>

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

namespace quern {
namespace {

Result<Json> json_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return Json(text->get());
  if (const auto* number = node.as_integer()) return Json(number->get());
  if (const auto* number = node.as_floating_point()) return Json(number->get());
  if (const auto* truth = node.as_boolean()) return Json(truth->get());
  if (const auto* array = node.as_array()) {
    Json::Array items;
    for (const toml::node& item : *array) {
      ASSIGN_OR_RETURN(Json value, json_of(item));
      items.push_back(std::move(value));
    }
    return Json(std::move(items));
  }
  if (const auto* table = node.as_table()) {
    Json::Object members;
    for (const auto& [key, item] : *table) {
      ASSIGN_OR_RETURN(Json value, json_of(item));
      members.emplace_back(std::string(key.str()), std::move(value));
    }
    return Json(std::move(members));
  }
  return Error{fmt::format("line {}: dates and times are not used here", node.source().begin.line)};
}

}  // namespace

Result<Json> parse_toml(std::string_view text) {
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return Error{fmt::format("line {}: {}", error.source().begin.line, error.description())};
  }
  return json_of(parsed.table());
}

}  // namespace quern
