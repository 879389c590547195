// Bpe: byte-pair encoding over bytes or characters, by a list of merges or by the scores of tokens. Immutable once
// made; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/subword/subword_model.h"
#include "text/subword/trie.h"
#include "text/subword/vocabulary.h"

namespace quern {

struct BpeOptions {
  int32_t unknown = -1;        // for what has no token; -1 drops it
  bool byte_fallback = false;  // characters without a token become <0xHH> tokens, if all of theirs exist
  bool fuse_unknown = false;   // neighbouring unknowns are one
  bool ignore_merges = false;  // a piece that is a token is that token, whatever the merges say
  std::string continuation;    // spelled before what does not start a piece
  std::string piece_end;       // and after what ends it
  std::optional<Trie> whole;   // tokens that stand as they are wherever the text has them, the longest first
};

class Bpe final : public SubwordModel {
 public:
  /// Merges by rank; give them to add_merge in order before the first use.
  Bpe(const Vocabulary& vocabulary, const BpeOptions& options, size_t merges);
  /// Merges any two neighbours whose joint spelling is a token, the highest score first (SentencePiece).
  Bpe(const Vocabulary& vocabulary, const BpeOptions& options, const std::vector<float>& scores);

  /// The next merge of the list, by spelling. Both tokens and what they spell together must be in the vocabulary.
  Status add_merge(std::string_view left, std::string_view right);

  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;

 private:
  struct Symbol;
  struct Merge;
  struct Queued;
  struct PairSlot {
    uint64_t pair = UINT64_MAX;
    uint32_t rank = 0;
    int32_t merged = 0;
  };
  void add_pair(int32_t left, int32_t right, int32_t merged);
  void learn_neighbours();
  bool may_join(char32_t left, char32_t right) const;
  void encode_remembered(std::string_view piece, std::vector<int32_t>& ids) const;
  void encode_new(std::string_view piece, std::vector<int32_t>& ids) const;
  std::vector<Symbol> split(std::string_view piece) const;
  Symbol find_whole(std::string_view piece, uint32_t begin) const;
  int32_t find_character(std::string_view piece, uint32_t begin, uint32_t length) const;
  void split_character(std::string_view piece, uint32_t begin, uint32_t length, std::vector<Symbol>& symbols) const;
  Merge find_merge(std::string_view piece, const Symbol& left, const Symbol& right) const;
  void merge_short(std::string_view piece, std::vector<Symbol>& symbols) const;
  void merge_long(std::string_view piece, std::vector<Symbol>& symbols) const;
  void emit(std::string_view piece, const Symbol& symbol, std::vector<int32_t>& ids) const;

  const Vocabulary& vocabulary_;
  BpeOptions options_;
  uint32_t owner_;                        // in the cache of pieces
  std::array<int32_t, 256> byte_tokens_;  // of single bytes, or <0xHH>
  bool all_bytes_ = true;                 // none of them is missing
  std::vector<PairSlot> pairs_;           // open addressing; empty when merging by score
  uint32_t next_rank_ = 0;
  std::vector<uint32_t> order_;  // by score: a lower number merges first
  size_t longest_token_ = 0;
  std::vector<uint64_t> neighbours_;  // which two characters stand side by side in a token: a hashed set of bits
  bool may_cut_ = true;
};

}  // namespace quern
