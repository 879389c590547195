#include "text/constraint/schema.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "text/constraint/schema_parts.h"
#include "text/pattern/unicode.h"

namespace quern {
namespace {

constexpr int64_t kMostCount = 1 << 20;
constexpr int64_t kMostMultiple = 100;  // beyond these XGrammar does not apply multipleOf
constexpr int64_t kMostMultipleRange = 10'000;
constexpr size_t kMostNodes = 20'000;
constexpr size_t kMostNamesPattern = size_t{64} << 10;

// Those that XGrammar spells without anything that JSON would have to escape; its email addresses may have quotes.
constexpr std::string_view kFormats[] = {"date", "time",     "date-time", "duration", "ipv4",
                                         "ipv6", "hostname", "uuid",      "uri"};
constexpr std::string_view kEmail =
    R"(^[A-Za-z0-9_+-]+(\.[A-Za-z0-9_+-]+)*@[A-Za-z0-9]+(-[A-Za-z0-9]+)*(\.[A-Za-z0-9]+(-[A-Za-z0-9]+)*)+$)";

std::string shown(const std::string& path) { return path.empty() ? "#" : path; }

Error unsupported(std::string_view keyword, const std::string& path, std::string_view what) {
  return Error{fmt::format("'{}' at '{}' is not supported: {}", keyword, shown(path), what)};
}

Error wrong(std::string_view keyword, const std::string& path, std::string_view expected) {
  return Error{fmt::format("'{}' at '{}' must be {}", keyword, shown(path), expected)};
}

Error impossible(const std::string& path, std::string_view why) {
  return Error{fmt::format("no value is valid at '{}': {}", shown(path), why)};
}

std::string plain_pattern(std::string_view pattern);
/// A regular expression for the strings that are none of `names`.
Result<std::string> none_of_pattern(const std::set<std::string>& names, const std::string& path);

class SchemaRewriter {
 public:
  SchemaRewriter(const Json& root, bool strict) : root_(root), strict_(strict) {}

  Result<Json> run() {
    ASSIGN_OR_RETURN(Json schema, rewrite(root_, ""));
    while (!pending_.empty()) {
      const std::string reference = pending_.back();
      pending_.pop_back();
      const Json* target = at_reference(root_, reference);
      if (target == nullptr || follow(root_, target) == nullptr) {
        return Error{
            fmt::format("'$ref' to '{}' leads nowhere; it must be '#' or '#/...' within the schema", reference)};
      }
      ASSIGN_OR_RETURN(Json made, rewrite(*target, reference.substr(1)));
      definitions_.set(names_.at(reference), std::move(made));
    }
    TRY(check_ends(schema));
    if (!names_.empty()) {
      if (schema.is_bool()) return schema;
      schema.set("$defs", definitions_);
    }
    return schema;
  }

 private:
  Result<Json> rewrite(const Json& schema, const std::string& path);
  Result<Json> rewrite_object_schema(const Json& schema, const std::string& path);
  Result<Json> reference(const Json& schema, const std::string& path);
  Result<Json> all_of(const Json& schema, const std::string& path);
  Result<Json> alternatives(const Json& schema, std::string_view keyword, const std::string& path);
  Result<Json> constants(const Json& schema, const std::string& path);
  Result<Json> typed(const Json& schema, const std::string& type, const std::string& path);
  Result<Json> string_schema(const Json& schema, const std::string& path);
  Result<Json> number_schema(const Json& schema, bool integer, const std::string& path);
  Result<Json> array_schema(const Json& schema, const std::string& path);
  Result<Json> object_schema(const Json& schema, const std::string& path);
  Result<Json> other_properties(const Json& schema, const std::string& path, Json made);
  Result<Json> named_properties(const Json& schema, const std::string& path, Json made);
  Status check_known(const Json& schema, const std::string& path) const;
  Status check_ends(const Json& schema) const;
  bool can_end(const Json& schema, const std::set<std::string>& ending) const;

  const Json& root_;
  const bool strict_;
  std::map<std::string, std::string> names_;  // of definitions, by reference
  std::vector<std::string> pending_;
  Json definitions_ = Json(Json::Object{});
  size_t nodes_ = 0;
};

/// A count that a keyword gives; nothing when it is absent.
Result<std::optional<int64_t>> count_of(const Json& schema, std::string_view keyword, const std::string& path) {
  const Json* value = schema.find(keyword);
  if (value == nullptr) return std::optional<int64_t>();
  if (!value->is_number() || value->as_number() < 0 || std::floor(value->as_number()) != value->as_number()) {
    return wrong(keyword, path, "a whole number that is not negative");
  }
  if (value->as_number() > static_cast<double>(kMostCount)) {
    if (keyword.starts_with("max")) return std::optional<int64_t>();
    return unsupported(keyword, path, fmt::format("at most {} is", kMostCount));
  }
  return std::optional<int64_t>(static_cast<int64_t>(value->as_number()));
}

Result<Json> SchemaRewriter::rewrite(const Json& schema, const std::string& path) {
  if (++nodes_ > kMostNodes) return Error{fmt::format("the schema has more than {} parts", kMostNodes)};
  if (schema.is_bool()) return schema.as_bool() ? Result<Json>(schema) : impossible(path, "the schema is false");
  if (!schema.is_object()) return Error{fmt::format("the schema at '{}' must be an object or a boolean", shown(path))};
  return rewrite_object_schema(schema, path);
}

Result<Json> SchemaRewriter::rewrite_object_schema(const Json& schema, const std::string& path) {
  TRY(check_known(schema, path));
  if (schema.has("$ref")) return reference(schema, path);
  if (schema.has("allOf")) return all_of(schema, path);
  if (schema.has("anyOf")) return alternatives(schema, "anyOf", path);
  if (schema.has("oneOf")) return alternatives(schema, "oneOf", path);
  if (schema.has("enum") || schema.has("const")) return constants(schema, path);
  std::vector<std::string> types = types_of(schema);
  if (schema.has("type") && types.empty()) return wrong("type", path, "the name of a type or a list of names");
  if (types.empty()) {
    std::set<std::string> implied;
    for (const auto& [key, value] : schema.members()) {
      if (const auto type = type_of_keyword(key); !type.empty()) implied.emplace(type);
    }
    if (implied.empty()) return Json(true);
    if (implied.size() > 1) return unsupported("type", path, "say which one, as there are keywords of several types");
    types.assign(implied.begin(), implied.end());
  }
  if (types.size() == 1) return typed(schema, types[0], path);
  Json::Array options;
  for (const std::string& type : types) {
    ASSIGN_OR_RETURN(Json option, typed(schema, type, path));
    options.push_back(std::move(option));
  }
  return Json(Json::Object{{"anyOf", std::move(options)}});
}

Status SchemaRewriter::check_known(const Json& schema, const std::string& path) const {
  for (const auto& [key, value] : schema.members()) {
    if (is_refused(key)) {
      const bool says_nothing =
          key.starts_with("unevaluated") && value.is_bool() && (value.as_bool() || !schema.has("allOf"));
      if (!says_nothing) return unsupported(key, path, "no grammar is made from it");
    }
    if (key == "uniqueItems" && !(value.is_bool() && !value.as_bool())) {
      return unsupported(key, path, "no grammar is made from it");
    }
    const bool known = is_annotation(key) || is_refused(key) || !type_of_keyword(key).empty() || key == "type" ||
                       key == "enum" || key == "const" || key == "$ref" || key == "allOf" || key == "anyOf" ||
                       key == "oneOf" || key.starts_with("x-");
    if (!known && strict_) return unsupported(key, path, "it is no keyword of JSON Schema");
  }
  return {};
}

Result<Json> SchemaRewriter::reference(const Json& schema, const std::string& path) {
  const Json& target = *schema.find("$ref");
  if (!target.is_string()) return wrong("$ref", path, "a string");
  const auto& members = schema.members();
  const bool alone = std::all_of(members.begin(), members.end(), [](const auto& member) {
    return member.first == "$ref" || is_annotation(member.first);
  });
  if (!alone) {
    const Json* place = at_reference(root_, target.as_string());
    if (place == nullptr) return Error{fmt::format("'$ref' at '{}' leads nowhere", shown(path))};
    Json rest(Json::Object{});
    for (const auto& [key, value] : members) {
      if (key != "$ref" && !is_annotation(key)) rest.set(key, value);
    }
    ASSIGN_OR_RETURN(const Json both, merged(root_, *place, rest, path));
    return rewrite(both, path);
  }
  const auto [name, added] =
      names_.try_emplace(target.as_string(), fmt::format("d{}", static_cast<int>(names_.size())));
  if (added) pending_.push_back(target.as_string());
  return Json(Json::Object{{"$ref", "#/$defs/" + name->second}});
}

Result<Json> SchemaRewriter::all_of(const Json& schema, const std::string& path) {
  const Json* parts = schema.find("allOf");
  if (!parts->is_array() || parts->items().empty()) return wrong("allOf", path, "a list of schemas");
  Json both(Json::Object{});
  for (const auto& [key, value] : schema.members()) {
    if (key != "allOf" && !is_annotation(key)) both.set(key, value);
  }
  if (both.members().empty() && parts->items().size() == 1) return rewrite(parts->items()[0], path + "/allOf/0");
  for (const Json& part : parts->items()) {
    ASSIGN_OR_RETURN(both, merged(root_, both, part, path + "/allOf"));
  }
  return rewrite(both, path);
}

/// What is said beside the alternatives holds for each of them.
Result<Json> SchemaRewriter::alternatives(const Json& schema, std::string_view keyword, const std::string& path) {
  const Json* options = schema.find(keyword);
  if (!options->is_array() || options->items().empty())
    return wrong(keyword, path, "a list of schemas that is not empty");
  Json rest(Json::Object{});
  for (const auto& [key, value] : schema.members()) {
    if (key != keyword && !is_annotation(key)) rest.set(key, value);
  }
  const auto& list = options->items();
  for (size_t i = 0; keyword == "oneOf" && i < list.size(); ++i) {
    for (size_t k = i + 1; k < list.size(); ++k) {
      if (!exclude_each_other(root_, list[i], list[k])) {
        return unsupported("oneOf", path,
                           fmt::format("options {} and {} do not exclude each other by a type or a constant; use anyOf "
                                       "if a value may fit both",
                                       i, k));
      }
    }
  }
  Json::Array made;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string place = fmt::format("{}/{}/{}", path, keyword, i);
    Json option = list[i];
    if (!rest.members().empty()) {
      ASSIGN_OR_RETURN(option, merged(root_, rest, list[i], place));
    }
    if (option.is_bool() && !option.as_bool()) continue;
    ASSIGN_OR_RETURN(Json one, rewrite(option, place));
    made.push_back(std::move(one));
  }
  if (made.empty()) return impossible(path, "every alternative is false");
  return made.size() == 1 ? std::move(made[0]) : Json(Json::Object{{"anyOf", std::move(made)}});
}

Result<Json> SchemaRewriter::constants(const Json& schema, const std::string& path) {
  const Json* list = schema.find("enum");
  const Json* single = schema.find("const");
  if (list != nullptr && (!list->is_array() || list->items().empty()))
    return wrong("enum", path, "a list that is not empty");
  for (const auto& [key, value] : schema.members()) {
    if (!type_of_keyword(key).empty()) {
      return unsupported(key, path, "beside 'enum' or 'const'; leave out the values that it excludes");
    }
  }
  const std::vector<std::string> types = types_of(schema);
  Json::Array values;
  for (const Json& value : list != nullptr ? list->items() : Json::Array{*single}) {
    const bool wanted = single == nullptr || value == *single;
    const bool typed = types.empty() || std::any_of(types.begin(), types.end(), [&](const std::string& type) {
                         return is_of_type(type_of_value(value), type);
                       });
    if (wanted && typed) values.push_back(value);
  }
  if (values.empty()) return impossible(path, "'enum' and 'const' have no value of the type");
  return Json(Json::Object{{"enum", std::move(values)}});
}

Result<Json> SchemaRewriter::typed(const Json& schema, const std::string& type, const std::string& path) {
  if (type == "string") return string_schema(schema, path);
  if (type == "integer" || type == "number") return number_schema(schema, type == "integer", path);
  if (type == "array") return array_schema(schema, path);
  if (type == "object") return object_schema(schema, path);
  if (type == "boolean" || type == "null") return Json(Json::Object{{"type", type}});
  return wrong("type", path, "one of string, number, integer, boolean, null, array, object");
}

/// `format` is an annotation: it gives way to what is asserted.
Result<Json> SchemaRewriter::string_schema(const Json& schema, const std::string& path) {
  Json made(Json::Object{{"type", "string"}});
  ASSIGN_OR_RETURN(const auto least, count_of(schema, "minLength", path));
  ASSIGN_OR_RETURN(const auto most, count_of(schema, "maxLength", path));
  const bool limited = least.value_or(0) > 0 || most;
  if (const Json* pattern = schema.find("pattern")) {
    if (!pattern->is_string()) return wrong("pattern", path, "a string");
    if (limited) return unsupported("pattern", path, "together with 'minLength' or 'maxLength'");
    return made.set("pattern", plain_pattern(pattern->as_string()));
  }
  if (least && most && *least > *most) return impossible(path, "'minLength' is more than 'maxLength'");
  if (limited) {
    if (least) made.set("minLength", *least);
    if (most) made.set("maxLength", *most);
    return made;
  }
  const std::string format = schema.string("format").value_or("");
  if (format == "email") return made.set("pattern", kEmail);
  const auto known = std::find(std::begin(kFormats), std::end(kFormats), format);
  if (known != std::end(kFormats)) made.set("format", format);
  return made;
}

Result<Json> SchemaRewriter::number_schema(const Json& schema, bool integer, const std::string& path) {
  Json made(Json::Object{{"type", integer ? "integer" : "number"}});
  constexpr double kMostInteger = 9e15;  // these are exact as doubles
  for (const std::string_view key : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
    const Json* value = schema.find(key);
    if (value == nullptr) continue;
    if (!value->is_number()) return wrong(key, path, "a number");
    const double bound = value->as_number();
    if (std::abs(bound) > kMostInteger)
      return unsupported(key, path, "numbers beyond 9e15 have no digits of their own");
    if (!integer) {
      made.set(key, bound);
      continue;
    }
    const bool low = key == "minimum" || key == "exclusiveMinimum";
    int64_t whole = static_cast<int64_t>(low ? std::ceil(bound) : std::floor(bound));
    const bool excluded = key.starts_with("exclusive") && static_cast<double>(whole) == bound;
    if (excluded) whole += low ? 1 : -1;
    const std::string_view name = low ? "minimum" : "maximum";
    const auto other = made.integer(name);
    made.set(name, other ? (low ? std::max(*other, whole) : std::min(*other, whole)) : whole);
  }
  if (const Json* multiple = schema.find("multipleOf")) {
    const double step = multiple->is_number() ? multiple->as_number() : 0;
    if (step <= 0) return wrong("multipleOf", path, "a number above 0");
    const auto low = made.integer("minimum");
    const auto high = made.integer("maximum");
    const bool small = (!low && !high) || (low && high && *high - *low <= kMostMultipleRange);
    if (!integer || step > static_cast<double>(kMostMultiple) || std::floor(step) != step || !small) {
      return unsupported("multipleOf", path,
                         "only whole steps up to 100 of integers without or with two near bounds are");
    }
    made.set("multipleOf", static_cast<int64_t>(step));
  }
  return made;
}

Result<Json> SchemaRewriter::array_schema(const Json& schema, const std::string& path) {
  Json made(Json::Object{{"type", "array"}});
  ASSIGN_OR_RETURN(const auto least, count_of(schema, "minItems", path));
  ASSIGN_OR_RETURN(auto most, count_of(schema, "maxItems", path));
  const Json* first = schema.find("prefixItems");
  if (first != nullptr && !first->is_array()) return wrong("prefixItems", path, "a list of schemas");
  const Json* items = schema.find("items");
  const bool closed = items != nullptr && items->is_bool() && !items->as_bool();
  Json::Array prefix;
  for (const Json& item : first != nullptr ? first->items() : Json::Array{}) {
    if (item.is_bool() && !item.as_bool()) break;  // so many at most
    ASSIGN_OR_RETURN(Json one, rewrite(item, fmt::format("{}/prefixItems/{}", path, prefix.size())));
    prefix.push_back(one.is_bool() ? Json(Json::Object{}) : std::move(one));
  }
  const auto count = static_cast<int64_t>(prefix.size());
  if (closed || (first != nullptr && prefix.size() < first->items().size()))
    most = std::min(most.value_or(count), count);
  if (most && least.value_or(0) > *most) return impossible(path, "'minItems' is more than there can be");
  if (most && *most < count) prefix.resize(static_cast<size_t>(*most));
  if (!prefix.empty()) made.set("prefixItems", std::move(prefix));
  if (closed || (most && *most <= count)) {
    made.set("items", false);
  } else {
    ASSIGN_OR_RETURN(Json one, rewrite(items == nullptr ? Json(true) : *items, path + "/items"));
    made.set("items", std::move(one));
  }
  if (least.value_or(0) > 0) made.set("minItems", *least);
  if (most) made.set("maxItems", *most);
  return made;
}

Result<Json> SchemaRewriter::object_schema(const Json& schema, const std::string& path) {
  Json made(Json::Object{{"type", "object"}});
  const Json* properties = schema.find("properties");
  if (properties != nullptr && !properties->is_object()) return wrong("properties", path, "an object");
  const Json* required = schema.find("required");
  if (required != nullptr && !required->is_array()) return wrong("required", path, "a list of names");
  for (const Json& name : required != nullptr ? required->items() : Json::Array{}) {
    if (!name.is_string()) return wrong("required", path, "a list of names");
  }
  const bool named =
      (properties != nullptr && !properties->members().empty()) || (required != nullptr && !required->items().empty());
  ASSIGN_OR_RETURN(const auto least, count_of(schema, "minProperties", path));
  ASSIGN_OR_RETURN(const auto most, count_of(schema, "maxProperties", path));
  if (least && most && *least > *most) return impossible(path, "'minProperties' is more than 'maxProperties'");
  if (least.value_or(0) > 0) made.set("minProperties", *least);
  if (most) made.set("maxProperties", *most);
  ASSIGN_OR_RETURN(
      made, named ? named_properties(schema, path, std::move(made)) : other_properties(schema, path, std::move(made)));
  // A name that comes twice counts once.
  const Json* names = made.find("required");
  const auto certain = static_cast<int64_t>(names == nullptr ? 0 : names->items().size());
  const Json* others = made.find("additionalProperties");
  const bool open = others == nullptr || !others->is_bool() || others->as_bool();
  if (open && least.value_or(0) > std::max<int64_t>(certain, 1)) {
    return unsupported("minProperties", path, "for properties that have no names in the schema");
  }
  return made;
}

/// An object of which no property has a name in the schema.
Result<Json> SchemaRewriter::other_properties(const Json& schema, const std::string& path, Json made) {
  const Json* patterns = schema.find("patternProperties");
  const Json* names = schema.find("propertyNames");
  const Json* others = schema.find("additionalProperties");
  if (patterns != nullptr) {
    if (!patterns->is_object() || patterns->members().size() > 1) {
      return unsupported("patternProperties", path, "more than one pattern");
    }
    if (names != nullptr || (others != nullptr && !(others->is_bool() && !others->as_bool()))) {
      return unsupported("patternProperties", path, "beside 'propertyNames' or 'additionalProperties'");
    }
    Json made_patterns(Json::Object{});
    for (const auto& [pattern, value] : patterns->members()) {
      ASSIGN_OR_RETURN(Json one, rewrite(value, path + "/patternProperties/" + pattern));
      made_patterns.set(plain_pattern(pattern), one.is_bool() ? Json(Json::Object{}) : std::move(one));
    }
    made.set("patternProperties", std::move(made_patterns));
    return made.set("additionalProperties", false);
  }
  if (others != nullptr && others->is_bool() && !others->as_bool()) return made.set("additionalProperties", false);
  if (names != nullptr) {
    ASSIGN_OR_RETURN(const Json both, merged(root_, *names, Json(Json::Object{{"type", "string"}}), path));
    ASSIGN_OR_RETURN(Json one, rewrite(both, path + "/propertyNames"));
    made.set("propertyNames", std::move(one));
  }
  ASSIGN_OR_RETURN(Json value, rewrite(others == nullptr ? Json(true) : *others, path + "/additionalProperties"));
  return made.set("additionalProperties", std::move(value));
}

Result<Json> SchemaRewriter::named_properties(const Json& schema, const std::string& path, Json made) {
  for (const std::string_view key : {"patternProperties", "propertyNames"}) {
    if (schema.has(key)) return unsupported(key, path, "beside 'properties' or 'required'");
  }
  const Json* others = schema.find("additionalProperties");
  const bool open = others != nullptr && !(others->is_bool() && !others->as_bool());
  Json properties(Json::Object{});
  std::set<std::string> names;
  const Json* listed = schema.find("properties");
  const Json* required = schema.find("required");
  const auto is_required = [&](const std::string& name) {
    return required != nullptr &&
           std::find(required->items().begin(), required->items().end(), Json(name)) != required->items().end();
  };
  for (const auto& [name, value] : listed != nullptr ? listed->members() : Json::Object{}) {
    names.insert(name);
    const bool never = value.is_bool() && !value.as_bool();
    if (never && !is_required(name)) continue;
    ASSIGN_OR_RETURN(Json one, rewrite(value, path + "/properties/" + name));
    properties.set(name, std::move(one));
  }
  Json::Array certain;
  for (const Json& name : required != nullptr ? required->items() : Json::Array{}) {
    if (std::find(certain.begin(), certain.end(), name) != certain.end()) continue;
    certain.push_back(name);
    if (!names.insert(name.as_string()).second) continue;
    if (!open) return impossible(path, fmt::format("the required '{}' is not among the properties", name.as_string()));
    ASSIGN_OR_RETURN(Json one, rewrite(*others, path + "/additionalProperties"));
    properties.set(name.as_string(), std::move(one));
  }
  if (const auto most = made.integer("maxProperties"); most && *most < static_cast<int64_t>(certain.size())) {
    return impossible(path, "'maxProperties' is less than what is required");
  }
  made.set("properties", std::move(properties));
  if (!certain.empty()) made.set("required", std::move(certain));
  if (!open) return made.set("additionalProperties", false);
  ASSIGN_OR_RETURN(std::string pattern, none_of_pattern(names, path));
  made.set("propertyNames", Json(Json::Object{{"type", "string"}, {"pattern", std::move(pattern)}}));
  ASSIGN_OR_RETURN(Json value, rewrite(*others, path + "/additionalProperties"));
  return made.set("additionalProperties", std::move(value));
}

/// Whether a value of the schema can be finished, given the definitions that can.
bool SchemaRewriter::can_end(const Json& schema, const std::set<std::string>& ending) const {
  const auto ends = [&](const Json* part) { return part == nullptr || can_end(*part, ending); };
  if (const auto target = schema.string("$ref")) return ending.contains(target->substr(sizeof("#/$defs/") - 1));
  if (const Json* options = schema.find("anyOf")) {
    return std::any_of(options->items().begin(), options->items().end(), [&](const Json& one) { return ends(&one); });
  }
  if (const Json* names = schema.find("required")) {
    return std::all_of(names->items().begin(), names->items().end(),
                       [&](const Json& name) { return ends(schema.find("properties")->find(name.as_string())); });
  }
  const auto least = static_cast<size_t>(schema.integer("minItems").value_or(0));
  const Json* first = schema.find("prefixItems");
  const size_t count = first == nullptr ? 0 : first->items().size();
  for (size_t i = 0; i < std::min(least, count); ++i) {
    if (!ends(&first->items()[i])) return false;
  }
  return least <= count || ends(schema.find("items"));
}

Status SchemaRewriter::check_ends(const Json& schema) const {
  std::set<std::string> ending;
  for (bool more = true; more;) {
    more = false;
    for (const auto& [name, definition] : definitions_.members()) {
      if (!ending.contains(name) && can_end(definition, ending)) more = ending.insert(name).second;
    }
  }
  for (const auto& [reference, name] : names_) {
    if (!ending.contains(name)) return Error{fmt::format("a value for '$ref' to '{}' could never end", reference)};
  }
  return can_end(schema, ending) ? Status() : Status(Error{"a value for the schema could never end"});
}

/// A character as it is written in a regular expression, in a class or outside.
std::string pattern_character(char32_t c) {
  const bool plain = c < 128 && std::isalnum(static_cast<int>(c)) != 0;
  return plain ? std::string(1, static_cast<char>(c)) : fmt::format("\\u{{{:x}}}", static_cast<uint32_t>(c));
}

/// A pattern as XGrammar reads it right in JSON strings: in ASCII, and without "?" after a group, which lets it go on
/// with the loop at the group's end.
std::string plain_pattern(std::string_view pattern) {
  std::string text;
  bool in_class = false;
  for (size_t at = 0; at < pattern.size();) {
    const Character character = decode_utf8(pattern.data() + at);
    const char c = pattern[at];
    const bool escaped = c == '\\' && at + 1 < pattern.size() && static_cast<unsigned char>(pattern[at + 1]) < 128;
    const size_t length = escaped ? 2 : character.length;
    if (character.length > 1) {
      text += pattern_character(character.code);
    } else {
      text += pattern.substr(at, length);
    }
    in_class = !escaped && (c == '[' || (in_class && c != ']'));
    at += length;
    if (c != ')' || in_class || at == pattern.size() || pattern[at] != '?') continue;
    text += "{0,1}";
    ++at;
  }
  return text;
}

/// For every beginning of a name: to go on in another way than a name does, and to stop where no name stops.
Result<std::string> none_of_pattern(const std::set<std::string>& names, const std::string& path) {
  std::map<std::string, std::string> next;  // by beginning, both as patterns
  std::set<std::string> whole;
  for (const std::string& name : names) {
    std::string beginning;
    for (size_t at = 0; at < name.size();) {
      const Character character = decode_utf8(name.data() + at);
      const std::string written = pattern_character(character.code);
      std::string& others = next[beginning];
      if (others.find(written) == std::string::npos) others += written;
      beginning += written;
      at += character.length;
    }
    next[beginning];
    whole.insert(beginning);
  }
  std::string pattern;
  for (const auto& [beginning, others] : next) {
    const std::string rest = others.empty() ? std::string(".+") : fmt::format("[^{}].*", others);
    pattern += fmt::format("{}{}{}", pattern.empty() ? "" : "|", beginning, rest);
    if (!whole.contains(beginning) && !beginning.empty()) pattern += "|" + beginning;
    if (pattern.size() > kMostNamesPattern) {
      return unsupported("additionalProperties", path, "beside so many or so long names of properties");
    }
  }
  return fmt::format("^({}){}$", pattern, whole.contains("") ? "" : "{0,1}");
}

}  // namespace

Result<Json> xgrammar_schema(const Json& schema, bool strict) { return SchemaRewriter(schema, strict).run(); }

}  // namespace quern
