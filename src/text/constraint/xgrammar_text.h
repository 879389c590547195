// What is asked for, in XGrammar's own words: checked and rewritten so that nothing is silently left out. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/constraint.h"
#include "text/tokenizer.h"

namespace quern {

inline constexpr int most_whitespace = 16;  // in a row, between the parts of JSON

struct XgrammarText {
  enum class Kind : uint8_t { schema, regex, ebnf, lark, structural_tag };
  Kind kind = Kind::schema;
  std::string text;
  std::vector<std::string> patterns;  // of JSON strings
  std::vector<int32_t> tokens;        // that the text names; control tokens are allowed only so
  bool no_raw_control = false;        // tokens with control characters (but line ends) never follow
};

Result<XgrammarText> xgrammar_text(const ConstraintSpec& spec, const Tokenizer& tokenizer);

}  // namespace quern
