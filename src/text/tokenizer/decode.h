// TokenDecoder: the bytes that one token adds to a text. Immutable once made; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace quern {

/// Every supported decoder of tokenizer.json comes down to this: tokens become bytes one by one, the bytes are joined,
/// at most one leading space goes, and what is no UTF-8 then is U+FFFD.
class TokenDecoder {
 public:
  /// From the `decoder` of a tokenizer.json; with null or nullptr tokens are joined by spaces.
  static Result<TokenDecoder> from_json(const Json* json);

  /// Appends what `token`, as the vocabulary spells it, adds in the middle of a text.
  void append(std::string& out, std::string_view token) const;
  bool strips_leading_space() const { return strips_leading_space_; }
  bool byte_level() const { return byte_level_; }

 private:
  struct Replacement {
    std::string from;
    std::string to;
  };
  Status add(const Json& json);

  std::vector<Replacement> replacements_;
  std::string separator_;  // before every token
  bool byte_level_ = false;
  bool byte_fallback_ = false;
  bool fused_ = false;
  bool strips_leading_space_ = false;
};

/// The byte that a token like <0x0A> stands for, or -1.
int byte_of_token(std::string_view token);

}  // namespace quern
