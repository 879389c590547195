// Operators of template expressions, with Python's meaning.
#pragma once

#include <cstdint>
#include <optional>

#include "text/template/ast.h"
#include "text/template/renderer.h"

namespace quern {

Value apply(Renderer& renderer, Operator op, const Value& left, const Value& right);
Value negate(Renderer& renderer, const Value& value, bool minus);
bool compare(Renderer& renderer, Operator op, const Value& left, const Value& right);
bool contains(Renderer& renderer, const Value& container, const Value& item);
/// object[start:stop:step]; undefined or none bounds are open.
Value slice(Renderer& renderer, const Value& object, const Value& start, const Value& stop, const Value& step);
/// object[index] of strings, lists and tuples; nothing when out of range.
std::optional<Value> index(Renderer& renderer, const Value& object, int64_t position);
/// len(value); nothing when it has none.
std::optional<int64_t> length(const Value& value);

}  // namespace quern
