// Vocabulary: token ids, how they are spelled and what they add to a text. Immutable once made; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace quern {

inline constexpr int64_t max_token_id = (1 << 22) - 1;

/// One token while a vocabulary is made.
struct TokenEntry {
  std::string_view text;          // as the vocabulary spells it; empty for an id that is not used
  bool in_model = false;          // the subword model may produce it from text
  bool special = false;           // a control token
  bool literal = false;           // adds its spelling to a text, whatever the decoder says
  std::string_view decoded = {};  // what the decoder sees, or what a literal one adds, where that is not `text`
};

class TokenDecoder;

class Vocabulary {
 public:
  /// `entries` by id, of valid UTF-8. With `byte_level` the model works on bytes and spellings are in the byte
  /// alphabet.
  static Result<Vocabulary> make(const std::vector<TokenEntry>& entries, const TokenDecoder& decoder, bool byte_level);

  int size() const { return static_cast<int>(special_.size()); }
  bool contains(int64_t id) const { return id >= 0 && id < size(); }
  std::string_view text(int32_t id) const { return texts_.at(id); }
  std::string_view bytes(int32_t id) const { return bytes_.at(id); }
  /// What the token adds at the start of a text.
  std::string_view first_bytes(int32_t id) const;
  bool special(int32_t id) const { return special_[static_cast<size_t>(id)]; }
  /// What the model sees: bytes in byte-level vocabularies, else the spelling.
  std::string_view key(int32_t id) const { return byte_level_ ? bytes(id) : text(id); }
  bool byte_level() const { return byte_level_; }

  /// The token that the model produces for a whole key, or -1.
  int32_t find_key(std::string_view key) const;
  /// The token of a spelling, or -1.
  int32_t find_text(std::string_view text) const;
  /// Whether `id` is one that find_key gives.
  bool in_model(int32_t id) const { return find_key(key(id)) == id; }
  /// The tokens that stand for single bytes: the byte itself in byte-level vocabularies, else <0xHH>; -1 for none.
  std::array<int32_t, 256> byte_tokens() const;

 private:
  /// Strings by number, in one block.
  struct Strings {
    std::string block;
    std::vector<uint32_t> ends;
    std::string_view at(int32_t i) const {
      const auto n = static_cast<size_t>(i);
      const uint32_t begin = n == 0 ? 0 : ends[n - 1];
      return std::string_view(block).substr(begin, ends[n] - begin);
    }
  };
  struct Slot {
    uint32_t tag = 0;
    int32_t id = -1;
  };
  void insert_key(int32_t id);

  bool byte_level_ = false;
  Strings texts_;
  Strings bytes_;
  std::vector<bool> special_;
  bool strips_leading_space_ = false;                     // from the first token of a text
  std::unordered_map<int32_t, std::string> first_bytes_;  // where they are not what that leaves
  std::vector<Slot> slots_;                               // open addressing, by key
  std::unordered_map<std::string, int32_t> by_text_;      // tokens that are not in `slots_`
};

}  // namespace quern
