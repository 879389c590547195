// The lexer of chat templates: source text -> tokens, with Jinja's whitespace control already applied.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quern {

struct TemplateToken {
  enum class Kind { data, output_begin, output_end, block_begin, block_end, name, string, integer, real, symbol, end };

  Kind kind = Kind::end;
  std::string text;  // data, name, string: the text itself; symbol: its spelling
  int64_t integer = 0;
  double real = 0;
  int line = 1;

  bool is_name(std::string_view name) const { return kind == Kind::name && text == name; }
  bool is_symbol(std::string_view symbol) const { return kind == Kind::symbol && text == symbol; }
  /// For messages: "'endif'", "end of template", ...
  std::string description() const;
};

/// The last token is always of kind `end`. `trim_blocks` and `lstrip_blocks` are on, one final newline is dropped.
Result<std::vector<TemplateToken>> lex_template(std::string_view source);

}  // namespace quern
