#include "text/tokenizer/tokenizer_file.h"

#include <charconv>
#include <cmath>
#include <fmt/format.h>

#include "text/pattern/unicode.h"

namespace quern {
namespace {

/// Walks over the text once. Only the two lists are really read; the rest goes to the JSON parser, which checks it.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Result<TokenizerFile> run() {
    TRY(each_member([this](std::string_view key) { return key == "model" ? model() : skip_value(); }));
    rest_ += text_.substr(copied_);
    ASSIGN_OR_RETURN(file_.rest, parse_rest());
    return std::move(file_);
  }

 private:
  Result<Json> parse_rest() const {
    Result<Json> json = Json::parse(rest_);
    if (!json.ok()) return Error{fmt::format("tokenizer.json: {}", json.error().message)};
    return json;
  }

  Error bad(std::string_view what) const { return Error{fmt::format("tokenizer.json: {} at byte {}", what, at_)}; }

  char peek() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char wanted) {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }

  /// Reads an object and lets `member` read each value.
  template <typename Member>
  Status each_member(Member member) {
    if (!take('{')) return bad("expected an object");
    if (take('}')) return {};
    do {
      ASSIGN_OR_RETURN(const std::string_view key, string());
      if (!take(':')) return bad("expected ':'");
      TRY(member(key));
    } while (take(','));
    if (!take('}')) return bad("expected ',' or '}'");
    return {};
  }

  template <typename Item>
  Status each_item(Item item) {
    if (!take('[')) return bad("expected a list");
    if (take(']')) return {};
    do {
      TRY(item());
    } while (take(','));
    if (!take(']')) return bad("expected ',' or ']'");
    return {};
  }

  Status model() {
    if (peek() != '{') return skip_value();
    return each_member([this](std::string_view key) -> Status {
      const char next = peek();
      const bool vocabulary = key == "vocab" && next == '{';
      const bool pieces = key == "vocab" && next == '[';
      if (!vocabulary && !pieces && !(key == "merges" && next == '[')) return skip_value();
      rest_ += text_.substr(copied_, at_ - copied_);
      rest_ += "null";
      TRY(vocabulary ? read_vocabulary() : pieces ? read_pieces() : read_merges());
      copied_ = at_;
      return {};
    });
  }

  Status read_vocabulary() {
    file_.vocabulary.clear();
    return each_member([this](std::string_view key) -> Status {
      peek();
      int64_t id = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), id);
      if (error != std::errc()) return bad("expected a token id");
      at_ = static_cast<size_t>(end - text_.data());
      file_.vocabulary.emplace_back(key, id);
      return {};
    });
  }

  Status read_pieces() {
    file_.pieces.clear();
    return each_item([this]() -> Status {
      if (!take('[')) return bad("expected a token with its score");
      ASSIGN_OR_RETURN(const std::string_view piece, string());
      if (!take(',')) return bad("expected a token with its score");
      const char first = peek();
      double score = 0.0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), score);
      const bool number = first == '-' || (first >= '0' && first <= '9');
      if (!number || error != std::errc() || !std::isfinite(score)) return bad("expected a score");
      at_ = static_cast<size_t>(end - text_.data());
      if (!take(']')) return bad("expected a token with its score");
      file_.pieces.emplace_back(piece, score);
      return {};
    });
  }

  Status read_merges() {
    file_.merges.clear();
    return each_item([this]() -> Status {
      if (peek() == '[') {
        std::vector<std::string_view>& pair = pair_;
        pair.clear();
        TRY(each_item([&]() -> Status {
          ASSIGN_OR_RETURN(const std::string_view token, string());
          pair.push_back(token);
          return {};
        }));
        if (pair.size() != 2) return bad("expected a merge of two tokens");
        file_.merges.emplace_back(pair[0], pair[1]);
        return {};
      }
      ASSIGN_OR_RETURN(const std::string_view both, string());
      if (both.starts_with("#version")) return {};
      const size_t space = both.find(' ', 1);
      if (space == std::string_view::npos) return bad("expected a merge of two tokens");
      file_.merges.emplace_back(both.substr(0, space), both.substr(space + 1));
      return {};
    });
  }

  Result<std::string_view> string() {
    if (!take('"')) return bad("expected a string");
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\') {
      if (static_cast<unsigned char>(text_[at_]) < 0x20) return bad("control character in a string");
      ++at_;
    }
    if (at_ == text_.size()) return bad("string without end");
    if (text_[at_] == '"') return text_.substr(begin, at_++ - begin);
    return escaped_string(begin);
  }

  Result<std::string_view> escaped_string(size_t begin) {
    std::string value(text_.substr(begin, at_ - begin));
    while (at_ < text_.size() && text_[at_] != '"') {
      const char c = text_[at_++];
      if (static_cast<unsigned char>(c) < 0x20) return bad("control character in a string");
      if (c != '\\') {
        value += c;
        continue;
      }
      const char kind = at_ < text_.size() ? text_[at_++] : '\0';
      static constexpr std::string_view from = "\"\\/bfnrt";
      static constexpr std::string_view to = "\"\\/\b\f\n\r\t";
      if (const size_t simple = from.find(kind); simple != std::string_view::npos) {
        value += to[simple];
      } else if (kind == 'u') {
        TRY(unicode_escape(value));
      } else {
        return bad("unknown escape in a string");
      }
    }
    if (at_ == text_.size()) return bad("string without end");
    ++at_;
    return std::string_view(file_.unescaped.emplace_back(std::move(value)));
  }

  Status unicode_escape(std::string& value) {
    ASSIGN_OR_RETURN(char32_t code, four_digits());
    if (code >= 0xD800 && code < 0xDC00 && text_.substr(at_, 2) == "\\u") {
      at_ += 2;
      ASSIGN_OR_RETURN(const char32_t low, four_digits());
      if (low < 0xDC00 || low > 0xDFFF) return bad("lone surrogate in a string");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    if (code >= 0xD800 && code < 0xE000) return bad("lone surrogate in a string");
    append_utf8(value, code);
    return {};
  }

  Result<char32_t> four_digits() {
    uint32_t code = 0;
    const std::string_view digits = text_.substr(at_, 4);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (error != std::errc() || digits.size() != 4 || end != digits.data() + 4) return bad("bad \\u in a string");
    at_ += 4;
    return static_cast<char32_t>(code);
  }

  /// Steps over any value by counting brackets.
  Status skip_value() {
    peek();
    int64_t depth = 0;
    do {
      const char c = peek();
      if (c == '\0') return bad("unexpected end");
      if (c == '"') {
        TRY(string());
        continue;
      }
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
      if (depth < 0) return bad("expected a value");
      ++at_;
      if (std::string_view("{}[],:").find(c) == std::string_view::npos) skip_word();
    } while (depth > 0);
    return {};
  }

  void skip_word() {
    while (at_ < text_.size() && std::string_view("{}[],: \t\r\n\"").find(text_[at_]) == std::string_view::npos) ++at_;
  }

  std::string_view text_;
  size_t at_ = 0;
  size_t copied_ = 0;  // up to where the text is in `rest_`
  std::string rest_;
  std::vector<std::string_view> pair_;
  TokenizerFile file_;
};

}  // namespace

Result<TokenizerFile> read_tokenizer_file(std::string_view text) {
  if (!is_utf8(text)) return Error{"tokenizer.json is no UTF-8"};
  return Reader(text).run();
}

}  // namespace quern
