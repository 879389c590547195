// What the parts of a JSON Schema say together: references, allOf as one schema, alternatives that exclude each other.
// Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace quern {

/// Keywords that do not change which values are valid, and containers of definitions.
bool is_annotation(std::string_view keyword);
/// Keywords of JSON Schema that have no place in a grammar.
bool is_refused(std::string_view keyword);
/// The type whose values a keyword speaks about; "" when of all or unknown.
std::string_view type_of_keyword(std::string_view keyword);

/// "#", or "#/..." with its escapes; null when nothing is there.
const Json* at_reference(const Json& root, std::string_view reference);
/// Follows `$ref` while nothing else is said beside it; null when it leads nowhere or in a circle.
const Json* follow(const Json& root, const Json* schema);

/// One schema for values that are valid under both. `false` when none are.
Result<Json> merged(const Json& root, const Json& a, const Json& b, const std::string& path);

/// Whether no value is valid under both, as far as types, constants and required properties tell.
bool exclude_each_other(const Json& root, const Json& a, const Json& b, int depth = 0);

/// The names in `type`; empty when absent or wrong.
std::vector<std::string> types_of(const Json& schema);
std::string_view type_of_value(const Json& value);
/// Whether a value of type `value_type` is of `type`: an integer is a number too.
bool is_of_type(std::string_view value_type, std::string_view type);

}  // namespace quern
