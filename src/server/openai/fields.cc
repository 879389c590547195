#include "server/openai/fields.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>

namespace quern {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

bool is_neutral(const Json& value) {
  if (value.is_bool()) return !value.as_bool();
  if (value.is_string()) return value.as_string().empty();
  if (value.is_array()) return value.items().empty();
  return value.is_object() && value.members().empty();
}

bool has_kind(const Json& value, Fields::Kind kind) {
  switch (kind) {
    case Fields::Kind::boolean: return value.is_bool();
    case Fields::Kind::number: return value.is_number();
    case Fields::Kind::string: return value.is_string();
    case Fields::Kind::array: return value.is_array();
    case Fields::Kind::object: return value.is_object();
    case Fields::Kind::any: return true;
  }
  return true;
}

std::string_view type_of(Fields::Kind kind) {
  static constexpr std::string_view types[] = {"boolean", "number", "string", "array", "object"};
  return types[static_cast<size_t>(kind)];
}

Json schema_of(Fields::Kind kind) {
  return kind == Fields::Kind::any ? Json(Json::Object{}) : Json().set("type", type_of(kind));
}

/// Bounds that stand for none are left out.
template <typename Number>
Json bounded(std::string_view type, Number low, Number high) {
  constexpr auto most = static_cast<Number>(std::numeric_limits<int32_t>::max());
  Json schema = Json().set("type", type);
  if (low > -most) schema.set("minimum", low);
  if (high < most) schema.set("maximum", high);
  return schema;
}

/// A field that may be left out may be null.
Json with_null(Json schema) {
  if (const Json* type = schema.find("type")) {
    Json::Array types = type->is_array() ? type->items() : Json::Array{*type};
    types.emplace_back("null");
    schema.set("type", std::move(types));
  }
  if (const Json* values = schema.find("enum")) {
    Json::Array list = values->items();
    list.emplace_back(nullptr);
    schema.set("enum", std::move(list));
  }
  return schema;
}

std::string_view name_of(Fields::Kind kind) {
  static constexpr std::string_view names[] = {"a boolean", "a number", "a string", "an array", "an object", "a value"};
  return names[static_cast<size_t>(kind)];
}

}  // namespace

void FieldNotes::add(std::string_view name, Json schema) {
  const auto known =
      std::find_if(properties_.begin(), properties_.end(), [&](const auto& one) { return one.first == name; });
  if (known == properties_.end()) {
    properties_.emplace_back(name, std::move(schema));
  } else if (known->second.members().empty()) {
    known->second = std::move(schema);
  }
}

Json FieldNotes::schema() const {
  Json properties(Json::Object{});
  for (const auto& [name, schema] : properties_) {
    const bool needed = std::find(required_.begin(), required_.end(), Json(name)) != required_.end();
    properties.set(name, needed ? schema : with_null(schema));
  }
  Json object = Json().set("type", "object").set("properties", std::move(properties));
  if (!required_.empty()) object.set("required", required_);
  return object;
}

std::optional<int64_t> whole(const Json& value) {
  if (value.is_integer()) return value.as_integer();
  constexpr double kExact = 9007199254740992.0;
  if (!value.is_number() || std::abs(value.as_number()) > kExact ||
      std::floor(value.as_number()) != value.as_number()) {
    return std::nullopt;
  }
  return static_cast<int64_t>(value.as_number());
}

std::optional<ApiError> read_token_ids(const Json::Array& list, const std::string& name, int32_t limit,
                                       std::vector<int32_t>& out) {
  out.reserve(out.size() + list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const auto id = whole(list[i]);
    if (!id) {
      return ApiError{
          400, fmt::format("Invalid type for '{}[{}]': expected a token id, but got {}.", name, i, list[i].kind()),
          "invalid_type", name};
    }
    if (*id < 0 || *id >= limit) {
      return ApiError{400,
                      fmt::format("Invalid '{}': token id {} is not in the vocabulary of {} tokens.", name, *id, limit),
                      "invalid_value", name};
    }
    out.push_back(static_cast<int32_t>(*id));
  }
  return std::nullopt;
}

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {}

Fields::Fields(FieldNotes& notes)
    : object_([]() -> const Json& {
        static const Json nothing(Json::Object{});
        return nothing;
      }()),
      notes_(&notes) {}

void Fields::note(std::string_view name, Json schema) {
  if (describing()) notes_->add(name, std::move(schema));
}

void Fields::stop_describing() {
  if (describing()) error_ = ApiError{500, "A description of fields is no request."};
}

const Json* Fields::one_of(std::string_view name, std::initializer_list<Kind> kinds) {
  if (describing()) {
    Json::Array types;
    for (const Kind kind : kinds) types.emplace_back(type_of(kind));
    note(name, Json().set("type", std::move(types)));
  }
  const Json* value = any(name);
  if (value == nullptr || std::any_of(kinds.begin(), kinds.end(), [&](Kind kind) { return has_kind(*value, kind); }))
    return value;
  std::string expected;
  for (const Kind kind : kinds) expected += (expected.empty() ? "" : " or ") + std::string(name_of(kind));
  wrong_kind(name, expected, *value);
  return nullptr;
}

const Json* Fields::any(std::string_view name) {
  note(name, Json(Json::Object{}));
  known_.emplace_back(name);
  return failed() ? nullptr : object_.present(name);
}

std::optional<bool> Fields::boolean(std::string_view name) {
  if (describing()) note(name, schema_of(Kind::boolean));
  const Json* value = any(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_bool()) return value->as_bool();
  wrong_kind(name, "a boolean", *value);
  return std::nullopt;
}

std::optional<int64_t> Fields::integer(std::string_view name, int64_t low, int64_t high) {
  if (describing()) note(name, bounded("integer", low, high));
  const Json* value = any(name);
  if (value == nullptr) return std::nullopt;
  const auto read = whole(*value);
  if (!read && value->is_number() && std::abs(value->as_number()) > 1e15) {
    const bool above = value->as_number() > 0;
    invalid(name, above ? "integer_above_max_value" : "integer_below_min_value",
            fmt::format("Invalid '{}': the integer is out of range.", full_name(name)));
    return std::nullopt;
  }
  if (!read) {
    wrong_kind(name, "an integer", *value);
    return std::nullopt;
  }
  if (*read < low) {
    invalid(name, "integer_below_min_value",
            fmt::format("Invalid '{}': integer below minimum value. Expected a value >= {}, but got {} instead.",
                        full_name(name), low, *read));
  } else if (*read > high) {
    invalid(name, "integer_above_max_value",
            fmt::format("Invalid '{}': integer above maximum value. Expected a value <= {}, but got {} instead.",
                        full_name(name), high, *read));
  }
  return read;
}

std::optional<double> Fields::number(std::string_view name, double low, double high) {
  if (describing()) note(name, bounded("number", low, high));
  const Json* value = any(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    wrong_kind(name, "a number", *value);
    return std::nullopt;
  }
  const double read = value->as_number();
  if (read < low) {
    invalid(name, "decimal_below_min_value",
            fmt::format("Invalid '{}': decimal below minimum value. Expected a value >= {}, but got {} instead.",
                        full_name(name), low, read));
  } else if (read > high) {
    invalid(name, "decimal_above_max_value",
            fmt::format("Invalid '{}': decimal above maximum value. Expected a value <= {}, but got {} instead.",
                        full_name(name), high, read));
  }
  return read;
}

std::optional<std::string> Fields::string(std::string_view name, size_t max_bytes) {
  if (describing()) note(name, schema_of(Kind::string));
  const Json* value = any(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    wrong_kind(name, "a string", *value);
    return std::nullopt;
  }
  if (value->as_string().size() > max_bytes) {
    invalid(name, "string_above_max_length",
            fmt::format("Invalid '{}': string too long. Expected at most {} bytes, but got {} instead.",
                        full_name(name), max_bytes, value->as_string().size()));
  }
  return value->as_string();
}

const Json::Array* Fields::array(std::string_view name, size_t max_items) {
  if (describing()) note(name, schema_of(Kind::array).set("maxItems", static_cast<int64_t>(max_items)));
  const Json* value = any(name);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) {
    wrong_kind(name, "an array", *value);
    return nullptr;
  }
  if (value->items().size() > max_items) {
    invalid(name, "array_above_max_length",
            fmt::format("Invalid '{}': array too long. Expected at most {} items, but got {} instead.", full_name(name),
                        max_items, value->items().size()));
    return nullptr;
  }
  return &value->items();
}

const Json* Fields::object(std::string_view name) {
  if (describing()) note(name, schema_of(Kind::object));
  const Json* value = any(name);
  if (value != nullptr && !value->is_object()) {
    wrong_kind(name, "an object", *value);
    return nullptr;
  }
  return value;
}

std::optional<std::string> Fields::choice(std::string_view name, std::initializer_list<std::string_view> values) {
  if (describing()) {
    Json::Array list;
    for (const std::string_view one : values) list.emplace_back(one);
    note(name, Json().set("enum", std::move(list)));
  }
  const auto value = string(name);
  if (!value || std::find(values.begin(), values.end(), *value) != values.end()) return value;
  invalid(name, "invalid_value",
          fmt::format("Invalid value for '{}': '{}'. Supported values are: {}.", full_name(name), value->substr(0, 64),
                      fmt::join(values, ", ")));
  return std::nullopt;
}

std::optional<std::vector<int32_t>> Fields::token_ids(std::string_view name, int32_t limit, size_t max_items) {
  if (describing()) {
    note(name, schema_of(Kind::array)
                   .set("items", bounded<int64_t>("integer", 0, limit - 1))
                   .set("maxItems", static_cast<int64_t>(max_items)));
  }
  const Json::Array* list = array(name, max_items);
  if (list == nullptr) return std::nullopt;
  std::vector<int32_t> ids;
  if (auto error = read_token_ids(*list, full_name(name), limit, ids)) fail(std::move(*error));
  return ids;
}

void Fields::ignore(Kind kind, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (describing()) note(name, schema_of(kind));
    const Json* value = any(name);
    if (value != nullptr && !has_kind(*value, kind)) wrong_kind(name, name_of(kind), *value);
  }
}

void Fields::refuse(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (describing()) note(name, Json().set("enum", Json::Array{Json(false)}).set("deprecated", true));
    const Json* value = any(name);
    if (value == nullptr || is_neutral(*value)) continue;
    fail(unsupported(full_name(name),
                     fmt::format("Unsupported parameter: '{}' is not supported by this server.", full_name(name))));
  }
}

void Fields::fail(ApiError error) {
  if (!failed() && !describing()) error_ = std::move(error);
}

void Fields::invalid(std::string_view name, std::string_view code, std::string message) {
  if (describing() && code == "missing_required_parameter") notes_->require(name);
  fail({400, std::move(message), std::string(code), full_name(name)});
}

void Fields::wrong_kind(std::string_view name, std::string_view expected, const Json& value) {
  invalid(
      name, "invalid_type",
      fmt::format("Invalid type for '{}': expected {}, but got {} instead.", full_name(name), expected, value.kind()));
}

std::vector<std::string> Fields::unknown() const {
  std::vector<std::string> names;
  if (!object_.is_object()) return names;
  for (const auto& [name, value] : object_.members()) {
    if (std::find(known_.begin(), known_.end(), name) == known_.end()) names.push_back(name);
  }
  names.insert(names.end(), unknown_inside_.begin(), unknown_inside_.end());
  return names;
}

void Fields::keep_names(std::string_view name, const Fields& inside) {
  const auto keep = [&](const std::vector<std::string>& names, std::vector<std::string>& to) {
    for (const std::string& inner : names) to.push_back(fmt::format("{}.{}", name, inner));
  };
  keep(inside.unknown(), unknown_inside_);
  keep(inside.known_, known_inside_);
  keep(inside.known_inside_, known_inside_);
}

std::string Fields::nearest(std::string_view name) const {
  const std::string_view start = name.substr(0, 64);
  std::vector<std::string> names = known_;
  names.insert(names.end(), known_inside_.begin(), known_inside_.end());
  return *std::min_element(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    return edit_distance(a, start) < edit_distance(b, start);
  });
}

}  // namespace quern
