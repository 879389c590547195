// Pattern: what the parts of a tokenizer search for in a text: a string, a regular expression or a class of characters.
// Immutable once made; any thread.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/pattern/regex.h"

namespace quern {

class Pattern {
 public:
  virtual ~Pattern() = default;
  /// Appends all matches in `text`, in order and apart.
  virtual Status find_all(std::string_view text, std::vector<Span>& matches) const = 0;

  /// Whether that takes time in proportion to the text.
  virtual bool is_linear() const { return true; }

  /// From {"String": s} or {"Regex": r}, as tokenizer.json spells patterns.
  static Result<std::unique_ptr<const Pattern>> from_json(const Json* json);
  static std::unique_ptr<const Pattern> literal(std::string text);
  /// By hand where there is a scanner for it.
  static Result<std::unique_ptr<const Pattern>> regex(std::string_view regex);
  /// Every character of a class is a match.
  static std::unique_ptr<const Pattern> characters(bool (*belongs)(char32_t code));
};

}  // namespace quern
