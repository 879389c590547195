// AddedTokens: the tokens that are found in a text as they are written, before anything else is done with it. Immutable
// once made; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/pattern/regex.h"

namespace quern {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // not inside a word
  bool lstrip = false;       // takes the whitespace on its left along
  bool rstrip = false;       // and on its right
  bool normalized = false;   // looked for after the normalizer
  bool special = false;      // a control token: found only in trusted text
};

inline constexpr size_t max_added_token_bytes = 512;

/// Which parts of a text are trusted: special tokens are recognised only there.
class Trust {
 public:
  static Trust none() { return Trust({}, false); }
  static Trust all() { return Trust({}, true); }
  /// `parts` are in order and apart.
  static Trust parts(std::span<const Span> parts) { return Trust(parts, false); }

  bool covers(size_t begin, size_t end) const;

 private:
  Trust(std::span<const Span> parts, bool all) : parts_(parts), all_(all) {}
  std::span<const Span> parts_;
  bool all_;
};

/// A part of a text: a token, or text between tokens.
struct Fragment {
  Span span;
  int32_t token = -1;
};

class AddedTokens {
 public:
  AddedTokens() = default;
  /// Tokens of which each has content of 1 to max_added_token_bytes bytes.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }
  /// Cuts `text` at its tokens, leftmost and longest first.
  std::vector<Fragment> find(std::string_view text, const Trust& trust) const;

 private:
  const AddedToken* longest(std::string_view text, size_t at, const Trust& trust) const;

  std::vector<AddedToken> tokens_;  // sorted by content
  struct Range {
    uint32_t first = 0;
    uint32_t last = 0;
  };
  std::array<Range, 256> by_first_byte_{};
};

}  // namespace quern
