// TokenDecoder: what tokens add to a text. Immutable once made; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/pattern/pattern.h"

namespace quern {

/// The decoder of a tokenizer.json. Nearly all come down to this: tokens become bytes one by one, the first one perhaps
/// in its own way; the bytes are joined, at most one leading space goes, and what is no UTF-8 then is U+FFFD. The rest
/// is decoded as a whole.
class TokenDecoder {
 public:
  /// From the `decoder` of a tokenizer.json; with null or nullptr tokens are joined by spaces.
  static Result<TokenDecoder> from_json(const Json* json);

  /// Appends what `token`, as the vocabulary spells it, adds in the middle of a text.
  void append(std::string& out, std::string_view token) const { append(out, token, false); }
  /// Appends what it adds as the first token of a text.
  void append_first(std::string& out, std::string_view token) const;
  bool strips_leading_space() const { return strips_leading_space_; }
  bool byte_level() const { return byte_level_; }
  /// Whether `append` tells the whole truth.
  bool by_token() const { return by_token_; }
  /// The text of all tokens, for decoders that do not work token by token.
  std::string decode(std::vector<std::string> tokens) const;

 private:
  enum class Kind : uint8_t { byte_level, byte_fallback, fuse, replace, metaspace, strip, word_piece, word_end, ctc };
  struct Step {
    Kind kind;
    std::shared_ptr<const Pattern> pattern = nullptr;  // of replace
    std::string text{};     // what is replaced, stripped or marks a continuation, a word's end or a pause
    std::string content{};  // what takes its place
    int64_t start = 0;      // of strip: at most this many
    int64_t stop = 0;
    bool clean = false;       // word_piece and ctc: no space before punctuation
    bool drop_first = false;  // metaspace: the first token loses its marks
  };

  Status add(const Json& json);
  Result<Step> read(const std::string& type, const Json& json) const;
  void note(const Step& step);
  void append(std::string& out, std::string_view token, bool first) const;
  static void change(const Step& step, std::string& token, bool first);
  static void change_all(const Step& step, std::vector<std::string>& tokens);

  std::vector<Step> steps_;
  std::string separator_;  // before every token
  bool byte_level_ = false;
  bool byte_fallback_ = false;
  bool fused_ = false;
  bool strips_leading_space_ = false;
  bool by_token_ = true;
};

/// The byte that a token like <0x0A> stands for, or -1.
int byte_of_token(std::string_view token);

}  // namespace quern
