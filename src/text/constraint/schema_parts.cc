#include "text/constraint/schema_parts.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <initializer_list>

#include "base/escapes.h"

namespace quern {
namespace {

constexpr int kMostReferences = 32;
constexpr int kMostDepth = 4;

bool among(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// A part of a JSON pointer in a URL (RFC 6901, 6): percents first, then ~.
std::string unescaped(std::string_view part) {
  const std::string pointer = percent_decoded(part);
  std::string text;
  for (size_t i = 0; i < pointer.size(); ++i) {
    const bool escape = pointer[i] == '~' && i + 1 < pointer.size() && (pointer[i + 1] == '0' || pointer[i + 1] == '1');
    text += !escape ? pointer[i] : pointer[++i] == '0' ? '~' : '/';
  }
  return text;
}

Error conflict(std::string_view keyword, const std::string& path) {
  return Error{fmt::format("'{}' is said twice at '{}', which cannot be combined here; say it once", keyword,
                           path.empty() ? "#" : path)};
}

Json as_list(const std::vector<std::string>& names) {
  Json::Array list;
  for (const std::string& name : names) list.emplace_back(name);
  return list;
}

/// An integer is a number: both together are integers.
Json common_types(const Json& a, const Json& b) {
  std::vector<std::string> common;
  for (const std::string& x : types_of(a)) {
    for (const std::string& y : types_of(b)) {
      if (is_of_type(x, y)) common.push_back(x);
      if (x != y && is_of_type(y, x)) common.push_back(y);
    }
  }
  return as_list(common);
}

Json united(const Json& a, const Json& b) {
  Json::Array list = a.is_array() ? a.items() : Json::Array{};
  for (const Json& item : b.is_array() ? b.items() : Json::Array{}) {
    if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
  }
  return list;
}

Json intersection(const Json& a, const Json& b) {
  Json::Array list;
  for (const Json& item : a.is_array() ? a.items() : Json::Array{}) {
    if (b.is_array() && std::find(b.items().begin(), b.items().end(), item) != b.items().end()) list.push_back(item);
  }
  return list;
}

Result<Json> merged_properties(const Json& root, const Json& a, const Json& b, const std::string& path) {
  if (!a.is_object() || !b.is_object()) return conflict("properties", path);
  Json both = a;
  for (const auto& [name, schema] : b.members()) {
    const Json* other = a.find(name);
    if (other == nullptr) {
      both.set(name, schema);
      continue;
    }
    ASSIGN_OR_RETURN(Json one, merged(root, *other, schema, path + "/properties/" + name));
    both.set(name, std::move(one));
  }
  return both;
}

/// One keyword that both say, differently.
Result<Json> merged_keyword(const Json& root, std::string_view key, const Json& a, const Json& b,
                            const std::string& path) {
  const bool numbers = a.is_number() && b.is_number();
  if (is_annotation(key)) return a;
  if (key == "properties") return merged_properties(root, a, b, path);
  if (key == "required") return united(a, b);
  if (key == "enum") return intersection(a, b);
  if (numbers && among(key, {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})) {
    return a.as_number() < b.as_number() ? b : a;
  }
  if (numbers && among(key, {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})) {
    return a.as_number() < b.as_number() ? a : b;
  }
  if (among(key, {"items", "additionalProperties"})) return merged(root, a, b, fmt::format("{}/{}", path, key));
  return conflict(key, path);
}

/// What one side closes must be what the other one names too.
bool closes_the_other(const Json& a, const Json& b) {
  if (!a.has("additionalProperties") ||
      (a.find("additionalProperties")->is_bool() && a.find("additionalProperties")->as_bool()))
    return false;
  const Json* theirs = b.find("properties");
  if (theirs == nullptr || !theirs->is_object()) return false;
  const Json* own = a.find("properties");
  return std::any_of(theirs->members().begin(), theirs->members().end(),
                     [&](const auto& member) { return own == nullptr || !own->has(member.first); });
}

std::optional<std::vector<Json>> finite_values(const Json& schema) {
  if (const Json* value = schema.find("const")) return std::vector<Json>{*value};
  const Json* values = schema.find("enum");
  if (values == nullptr || !values->is_array()) return std::nullopt;
  return values->items();
}

bool requires_property(const Json& schema, std::string_view name) {
  const Json* required = schema.find("required");
  return required != nullptr && required->is_array() &&
         std::any_of(required->items().begin(), required->items().end(),
                     [&](const Json& one) { return one.is_string() && one.as_string() == name; });
}

bool told_apart_by_a_property(const Json& root, const Json& a, const Json& b, int depth) {
  const Json* ours = a.find("properties");
  const Json* theirs = b.find("properties");
  if (ours == nullptr || theirs == nullptr || !ours->is_object()) return false;
  return std::any_of(ours->members().begin(), ours->members().end(), [&](const auto& member) {
    const Json* other = theirs->find(member.first);
    return other != nullptr && requires_property(a, member.first) && requires_property(b, member.first) &&
           exclude_each_other(root, member.second, *other, depth + 1);
  });
}

/// The types that values of `schema` can have; empty: any.
std::vector<std::string> possible_types(const Json& schema) {
  if (const auto values = finite_values(schema)) {
    std::vector<std::string> types;
    for (const Json& value : *values) types.emplace_back(type_of_value(value));
    return types;
  }
  if (schema.has("type")) return types_of(schema);
  for (const auto& [key, value] : schema.members()) {
    if (key == "properties" || key == "required") return {"object"};
  }
  return {};
}

}  // namespace

bool is_annotation(std::string_view keyword) {
  return among(keyword, {"title",           "description",   "default",       "examples",
                         "example",         "deprecated",    "readOnly",      "writeOnly",
                         "$comment",        "$schema",       "$id",           "$anchor",
                         "$vocabulary",     "$defs",         "definitions",   "contentMediaType",
                         "contentEncoding", "contentSchema", "discriminator", "nullable"});
}

bool is_refused(std::string_view keyword) {
  return among(keyword, {"not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies",
                         "contains", "minContains", "maxContains", "unevaluatedItems", "unevaluatedProperties",
                         "$dynamicRef", "$recursiveRef", "additionalItems"});
}

std::string_view type_of_keyword(std::string_view keyword) {
  if (among(keyword, {"properties", "required", "additionalProperties", "patternProperties", "propertyNames",
                      "minProperties", "maxProperties"})) {
    return "object";
  }
  if (among(keyword, {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"})) return "array";
  if (among(keyword, {"minLength", "maxLength", "pattern", "format"})) return "string";
  if (among(keyword, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})) return "number";
  return "";
}

const Json* at_reference(const Json& root, std::string_view reference) {
  if (reference == "#" || reference == "#/") return &root;
  if (!reference.starts_with("#/")) return nullptr;
  const Json* place = &root;
  for (std::string_view rest = reference.substr(2); place != nullptr;) {
    const size_t end = rest.find('/');
    const std::string part = unescaped(rest.substr(0, end));
    if (place->is_array()) {
      const bool number = !part.empty() && part.size() < 6 && part.find_first_not_of("0123456789") == std::string::npos;
      const size_t index = number ? std::stoul(part) : place->items().size();
      place = index < place->items().size() ? &place->items()[index] : nullptr;
    } else {
      place = place->find(part);
    }
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return place;
}

const Json* follow(const Json& root, const Json* schema) {
  for (int steps = 0; schema != nullptr && schema->is_object() && schema->has("$ref"); ++steps) {
    const auto& members = schema->members();
    const bool alone = std::all_of(members.begin(), members.end(), [](const auto& member) {
      return member.first == "$ref" || is_annotation(member.first);
    });
    if (!alone) return schema;
    const Json* reference = schema->find("$ref");
    if (steps == kMostReferences || !reference->is_string()) return nullptr;
    schema = at_reference(root, reference->as_string());
  }
  return schema;
}

Result<Json> merged(const Json& root, const Json& a, const Json& b, const std::string& path) {
  const Json* ours = follow(root, &a);
  const Json* theirs = follow(root, &b);
  if (ours == nullptr || theirs == nullptr) return Error{fmt::format("a '$ref' at '{}' leads nowhere", path)};
  if (ours->is_bool()) return ours->as_bool() ? *theirs : Json(false);
  if (theirs->is_bool()) return theirs->as_bool() ? *ours : Json(false);
  if (!ours->is_object() || !theirs->is_object()) {
    return Error{fmt::format("the schema at '{}' must be an object", path)};
  }
  if (closes_the_other(*ours, *theirs) || closes_the_other(*theirs, *ours)) {
    return conflict("additionalProperties", path);
  }
  Json both = *ours;
  for (const auto& [key, value] : theirs->members()) {
    const Json* other = ours->find(key);
    if (other == nullptr || *other == value) {
      both.set(key, value);
    } else if (key == "type") {
      both.set(key, common_types(*ours, *theirs));
      if (both.find("type")->items().empty()) return Json(false);
    } else if (key == "const") {
      return Json(false);
    } else {
      ASSIGN_OR_RETURN(Json one, merged_keyword(root, key, *other, value, path));
      both.set(key, std::move(one));
    }
  }
  return both;
}

bool exclude_each_other(const Json& root, const Json& a, const Json& b, int depth) {
  const Json* ours = follow(root, &a);
  const Json* theirs = follow(root, &b);
  if (ours == nullptr || theirs == nullptr || !ours->is_object() || !theirs->is_object() || depth > kMostDepth)
    return false;
  const auto values = finite_values(*ours);
  const auto others = finite_values(*theirs);
  if (values && others) {
    return std::none_of(values->begin(), values->end(), [&](const Json& value) {
      return std::any_of(others->begin(), others->end(), [&](const Json& other) {
        return value == other || (value.is_number() && other.is_number() && value.as_number() == other.as_number());
      });
    });
  }
  const std::vector<std::string> types = possible_types(*ours);
  const std::vector<std::string> other_types = possible_types(*theirs);
  const bool overlap =
      types.empty() || other_types.empty() || std::any_of(types.begin(), types.end(), [&](const std::string& x) {
        return std::any_of(other_types.begin(), other_types.end(),
                           [&](const std::string& y) { return is_of_type(x, y) || is_of_type(y, x); });
      });
  return !overlap || told_apart_by_a_property(root, *ours, *theirs, depth);
}

std::vector<std::string> types_of(const Json& schema) {
  const Json* type = schema.find("type");
  if (type == nullptr) return {};
  if (type->is_string()) return {type->as_string()};
  std::vector<std::string> types;
  for (const Json& one : type->is_array() ? type->items() : Json::Array{}) {
    if (one.is_string()) types.push_back(one.as_string());
  }
  return types;
}

std::string_view type_of_value(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_bool()) return "boolean";
  if (value.is_string()) return "string";
  if (value.is_array()) return "array";
  if (value.is_object()) return "object";
  return value.is_integer() || std::floor(value.as_number()) == value.as_number() ? "integer" : "number";
}

bool is_of_type(std::string_view value_type, std::string_view type) {
  return value_type == type || (value_type == "integer" && type == "number");
}

}  // namespace quern
