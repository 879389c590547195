#include "server/openai/fill_in.h"

namespace quern {

std::optional<MiddleMarks> middle_marks(const Tokenizer& tokenizer) {
  static constexpr MiddleMarks known[] = {
      {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
      {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
      {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
      {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
      {"<\uFF5Cfim\u2581begin\uFF5C>", "<\uFF5Cfim\u2581hole\uFF5C>", "<\uFF5Cfim\u2581end\uFF5C>"},
      {"\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>"},
      {"<PRE>", "<SUF>", "<MID>"},
      {"[PREFIX]", "[SUFFIX]", ""}};
  if (const auto named = tokenizer.fill_in_tokens()) {
    return MiddleMarks{tokenizer.token_text(named->prefix), tokenizer.token_text(named->suffix),
                       tokenizer.token_text(named->middle)};
  }
  for (const MiddleMarks& marks : known) {
    const bool complete = tokenizer.id_of(marks.prefix) && tokenizer.id_of(marks.suffix) &&
                          (marks.middle.empty() || tokenizer.id_of(marks.middle));
    if (complete) return marks;
  }
  return std::nullopt;
}

std::vector<TextPiece> middle_pieces(const MiddleMarks& marks, const std::string& prompt, const std::string& suffix) {
  const TextPiece before{std::string(marks.prefix), true};
  const TextPiece after{std::string(marks.suffix), true};
  if (marks.middle.empty()) return {after, {suffix}, before, {prompt}};
  return {before, {prompt}, after, {suffix}, {std::string(marks.middle), true}};
}

}  // namespace quern
