// Unigram: the split of a piece whose tokens have the highest sum of scores. Immutable once made; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/subword/subword_model.h"
#include "text/subword/trie.h"
#include "text/subword/vocabulary.h"

namespace quern {

struct UnigramOptions {
  int32_t unknown = -1;           // for characters without a token: must be one
  double unknown_score = 0.0;     // of each of them
  bool byte_fallback = false;     // they become <0xHH> tokens, if all of theirs exist
  bool single_precision = false;  // sums are floats, as in `sentencepiece`: what wins of equals depends on it
  bool whole_texts = false;       // pieces are whole texts, which do not come again
};

class Unigram final : public SubwordModel {
 public:
  /// `scores` by id, finite. Tokens that are special or not in the model are never produced.
  static Result<std::unique_ptr<const Unigram>> make(const Vocabulary& vocabulary, const UnigramOptions& options,
                                                     std::vector<double> scores);

  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;

 private:
  /// The best way to a place in the text.
  struct Arrival {
    double score = 0.0;
    uint32_t begin = UINT32_MAX;  // of its last token; UINT32_MAX when there is no way
    int32_t id = -1;
  };
  struct Walk;

  Unigram(const Vocabulary& vocabulary, const UnigramOptions& options, std::vector<double> scores);
  void encode_new(std::string_view piece, std::vector<int32_t>& ids) const;
  void leave(Walk& walk, uint32_t at) const;
  void arrive(Arrival& place, double score, uint32_t begin, int32_t id) const;
  void settle(Walk& walk, uint32_t end) const;
  void emit_unknown(std::string_view text, std::vector<int32_t>& ids) const;

  const Vocabulary& vocabulary_;
  UnigramOptions options_;
  uint32_t owner_;  // in the cache of pieces
  Trie trie_;
  size_t longest_ = 4;  // bytes of a token or a character
  std::vector<double> scores_;
  std::array<int32_t, 256> byte_tokens_{};
};

}  // namespace quern
