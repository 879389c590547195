// Values as text: Python's str and repr, and JSON as Python's json.dumps writes it.
#pragma once

#include <optional>
#include <string>

#include "text/template/value.h"

namespace quern {

Text to_text(const Value& value, Budget& budget);
Text to_repr(const Value& value, Budget& budget);
/// The shortest text that reads back as the same double, spelled as Python spells it.
std::string float_text(double value);

struct JsonStyle {
  bool ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;
  std::optional<Text> item_separator, key_separator;
};
/// Fails the budget for values that JSON does not have.
Text to_json(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace quern
