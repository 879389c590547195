// Filling in the middle: the text between a prompt and a suffix, as models are
// trained to write it. Values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace quern {

/// How a model's vocabulary marks the parts: as its file says, else the first
/// spelling of which it has every token. Lives as long as the tokenizer.
struct MiddleMarks {
  std::string_view prefix;
  std::string_view suffix;
  std::string_view middle;  // "": what is wanted follows the prefix, which then comes last
};
std::optional<MiddleMarks> middle_marks(const Tokenizer& tokenizer);

/// The parts in the order that the model wants. What the client sends cannot
/// become a mark.
std::vector<TextPiece> middle_pieces(const MiddleMarks& marks, const std::string& prompt, const std::string& suffix);

}  // namespace quern
