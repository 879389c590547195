// Models that look words up: WordPiece takes the longest token again and again, WordLevel the whole word. Immutable
// once made; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/subword/subword_model.h"
#include "text/subword/trie.h"
#include "text/subword/vocabulary.h"

namespace quern {

struct WordPieceOptions {
  int32_t unknown = -1;             // for a word that tokens do not cover: must be one
  std::string start;                // before tokens that start a word
  std::string continuation = "##";  // before those that do not
  int64_t max_characters = 100;     // a longer word is unknown
};

class WordPiece final : public SubwordModel {
 public:
  static Result<std::unique_ptr<const WordPiece>> make(const Vocabulary& vocabulary, const WordPieceOptions& options);
  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;

 private:
  WordPiece(const WordPieceOptions& options, Trie trie);
  void encode_new(std::string_view piece, std::vector<int32_t>& ids) const;

  WordPieceOptions options_;
  uint32_t owner_;  // in the cache of pieces
  Trie trie_;
  int32_t first_;      // the node that a word starts from, or -1
  int32_t continued_;  // the node that tokens within a word start from, or -1
};

class WordLevel final : public SubwordModel {
 public:
  WordLevel(const Vocabulary& vocabulary, int32_t unknown) : vocabulary_(vocabulary), unknown_(unknown) {}
  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;

 private:
  const Vocabulary& vocabulary_;
  int32_t unknown_;  // -1 drops words without a token
};

}  // namespace quern
