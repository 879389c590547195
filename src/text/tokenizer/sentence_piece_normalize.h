// How SentencePiece prepares a text: its charsmap, then spaces. Immutable once made; any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/normalize.h"

namespace quern {

struct SentencePieceRules {
  std::optional<Charsmap> charsmap;  // replaces the longest match at each place
  std::vector<std::string> kept;     // spellings that the charsmap does not touch
  bool add_prefix = true;            // a space before the text, or after it
  bool remove_extra_spaces = true;   // no space at the ends, one between words
  bool escape_spaces = true;         // spaces become U+2581
  bool spaces_follow_words = false;  // the added space stands after the text
};

Result<std::unique_ptr<const Normalization>> sentence_piece_normalization(SentencePieceRules rules);

}  // namespace quern
