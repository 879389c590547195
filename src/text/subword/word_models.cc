#include "text/subword/word_models.h"

#include "text/pattern/unicode.h"
#include "text/subword/piece_cache.h"

namespace quern {

Result<std::unique_ptr<const WordPiece>> WordPiece::make(const Vocabulary& vocabulary,
                                                         const WordPieceOptions& options) {
  if (!vocabulary.contains(options.unknown)) return Error{"tokenizer: WordPiece needs a token for unknown words"};
  std::vector<Trie::Key> keys;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary.in_model(id) && !vocabulary.special(id)) keys.push_back({vocabulary.key(id), id});
  }
  ASSIGN_OR_RETURN(Trie trie, Trie::make(std::move(keys)));
  return std::unique_ptr<const WordPiece>(new WordPiece(options, std::move(trie)));
}

WordPiece::WordPiece(const WordPieceOptions& options, Trie trie)
    : options_(options),
      owner_(next_piece_owner()),
      trie_(std::move(trie)),
      first_(trie_.walk(Trie::root, options_.start)),
      continued_(trie_.walk(Trie::root, options_.continuation)) {}

void WordPiece::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  encode_cached(owner_, piece, ids,
                [this](std::string_view text, std::vector<int32_t>& out) { encode_new(text, out); });
}

void WordPiece::encode_new(std::string_view piece, std::vector<int32_t>& ids) const {
  const size_t start = ids.size();
  const bool too_long = static_cast<int64_t>(piece.size()) > options_.max_characters &&
                        static_cast<int64_t>(count_characters(piece)) > options_.max_characters;
  size_t at = too_long ? piece.size() : 0;
  while (at < piece.size()) {
    int32_t node = at == 0 ? first_ : continued_;
    int32_t found = -1;
    size_t found_end = at;
    for (size_t end = at; node >= 0 && end < piece.size();) {
      node = trie_.step(node, piece[end++]);
      if (node < 0 || trie_.value(node) < 0) continue;
      found = trie_.value(node);
      found_end = end;
    }
    if (found < 0) break;
    ids.push_back(found);
    at = found_end;
  }
  if (at == piece.size() && !too_long) return;
  ids.resize(start);
  ids.push_back(options_.unknown);
}

void WordLevel::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  const int32_t whole = vocabulary_.find_key(piece);
  const bool known = whole >= 0 && !vocabulary_.special(whole);
  if (known || unknown_ >= 0) ids.push_back(known ? whole : unknown_);
}

}  // namespace quern
