#include "text/template/lexer.h"

#include <array>
#include <charconv>
#include <cmath>
#include <fmt/format.h>

#include "text/template/text.h"

namespace quern {

std::string TemplateToken::description() const {
  switch (kind) {
    case Kind::data: return "template text";
    case Kind::output_begin: return "'{{'";
    case Kind::output_end: return "'}}'";
    case Kind::block_begin: return "'{%'";
    case Kind::block_end: return "'%}'";
    case Kind::string: return "a string";
    case Kind::integer:
    case Kind::real: return "a number";
    case Kind::end: return "end of template";
    case Kind::name:
    case Kind::symbol: break;
  }
  return fmt::format("'{}'", text);
}

namespace {

using Kind = TemplateToken::Kind;

bool is_decimal(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}

/// "\r\n" and "\r" become "\n", and one newline at the end goes.
std::string normalize_newlines(std::string_view source) {
  std::string result;
  result.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') continue;
      result += '\n';
    } else {
      result += source[i];
    }
  }
  if (result.ends_with('\n')) result.pop_back();
  return result;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<TemplateToken>> run() {
    while (at_ < source_.size()) TRY(lex_data());
    add(Kind::end, "");
    return std::move(tokens_);
  }

 private:
  Error error(std::string_view what) const { return Error{fmt::format("chat template line {}: {}", line_, what)}; }

  bool at(std::string_view text) const { return std::string_view(source_).substr(at_).starts_with(text); }

  void add(Kind kind, std::string text) {
    TemplateToken token;
    token.kind = kind;
    token.text = std::move(text);
    token.line = line_;
    tokens_.push_back(std::move(token));
  }

  void advance(size_t to) {
    for (; at_ < to; ++at_) {
      if (source_[at_] == '\n') ++line_;
    }
  }

  void skip_spaces() {
    size_t end = at_;
    while (end < source_.size() && is_space(character_at(source_, end))) end += character_size(source_, end);
    advance(end);
  }

  /// Text up to the next tag, then the tag.
  Status lex_data() {
    size_t tag = source_.find('{', at_);
    while (tag != std::string::npos) {
      const char next = tag + 1 < source_.size() ? source_[tag + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') break;
      tag = source_.find('{', tag + 1);
    }
    if (tag == std::string::npos) {
      add(Kind::data, source_.substr(at_));
      advance(source_.size());
      return {};
    }
    const char type = source_[tag + 1];
    add_data_before(tag, type != '{');
    if (type == '#') return lex_comment();
    advance(tag_content_begin(tag));
    if (type == '{') return lex_tag(Kind::output_begin, Kind::output_end, "}}");
    bool raw = false;
    TRY(lex_raw(raw));
    return raw ? Status() : lex_tag(Kind::block_begin, Kind::block_end, "%}");
  }

  /// The position behind "{%", "{%-" or "{%+".
  size_t tag_content_begin(size_t tag) const {
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    return tag + (sign == '-' || sign == '+' ? 3 : 2);
  }

  /// Adds the text from here to `tag` as its sign and `lstrip_blocks` leave it, and moves to the tag.
  void add_data_before(size_t tag, bool strip_line) {
    std::string_view text = std::string_view(source_).substr(at_, tag - at_);
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    if (sign == '-') {
      text = without_trailing_spaces(text);
    } else if (sign != '+' && strip_line) {
      const size_t line_begin = text.rfind('\n') + 1;  // 0 when there is none
      const std::string_view indent = text.substr(line_begin);
      if ((line_begin > 0 || line_starting_) && without_trailing_spaces(indent).empty()) {
        text = text.substr(0, line_begin);
      }
    }
    if (!text.empty()) add(Kind::data, std::string(text));
    advance(tag);
  }

  static std::string_view without_trailing_spaces(std::string_view text) {
    while (!text.empty()) {
      size_t last = text.size() - 1;
      while (last > 0 && (text[last] & 0xC0) == 0x80) --last;
      if (!is_space(character_at(text, last))) break;
      text = text.substr(0, last);
    }
    return text;
  }

  /// Moves behind a tag that ends here with `close`, a sign before it or not; false when it does not end here.
  bool take_end(std::string_view close, bool trim_newline) {
    const bool minus = at("-");
    const bool plus = trim_newline && at("+");
    if (!std::string_view(source_).substr(at_ + (minus || plus ? 1 : 0)).starts_with(close)) return false;
    advance(at_ + close.size() + (minus || plus ? 1 : 0));
    if (minus) {
      skip_spaces();
    } else if (trim_newline && !plus && at("\n")) {
      advance(at_ + 1);
    }
    line_starting_ = source_[at_ - 1] == '\n';
    return true;
  }

  Status lex_comment() {
    const int begin_line = line_;
    const size_t content = tag_content_begin(at_);
    size_t close = source_.find("#}", content);
    if (close == std::string::npos) {
      line_ = begin_line;
      return error("a comment '{#' is not closed");
    }
    if (close > content && (source_[close - 1] == '-' || source_[close - 1] == '+')) --close;
    advance(close);
    take_end("#}", true);
    return {};
  }

  /// `{% raw %}` ... `{% endraw %}` is plain text. Leaves everything as it is when another tag begins here.
  Status lex_raw(bool& raw) {
    const size_t tag = at_;
    const int tag_line = line_;
    skip_spaces();
    if (at("raw")) {
      advance(at_ + 3);
      skip_spaces();
      const bool plus = at("+");
      if (!plus && take_end("%}", false)) raw = true;
    }
    if (!raw) {
      at_ = tag;
      line_ = tag_line;
      return {};
    }
    return lex_raw_text();
  }

  Status lex_raw_text() {
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 1)) {
      size_t name = tag_content_begin(tag);
      while (name < source_.size() && is_space(character_at(source_, name))) name += character_size(source_, name);
      if (!std::string_view(source_).substr(name).starts_with("endraw")) continue;
      add_data_before(tag, true);
      advance(name + std::string_view("endraw").size());
      skip_spaces();
      if (take_end("%}", true)) return {};
      return error("'{% endraw' is not closed by '%}'");
    }
    return error("'{% raw %}' is not closed");
  }

  Status lex_tag(Kind begin, Kind end, std::string_view close) {
    add(begin, "");
    const int begin_line = line_;
    std::string open;  // brackets not closed yet
    while (true) {
      if (open.empty() && take_end(close, end == Kind::block_end)) {
        add(end, "");
        return {};
      }
      if (at_ >= source_.size()) {
        line_ = begin_line;
        return error(fmt::format("a tag is not closed by '{}'", close));
      }
      TRY(lex_token(open));
    }
  }

  Status lex_token(std::string& open) {
    const char c = source_[at_];
    if (is_space(character_at(source_, at_))) {
      advance(at_ + character_size(source_, at_));
      return {};
    }
    if (is_decimal(c)) return lex_number();
    if (is_name_start(c)) {
      size_t end = at_;
      while (end < source_.size() && (is_name_start(source_[end]) || is_decimal(source_[end]))) ++end;
      add(Kind::name, source_.substr(at_, end - at_));
      advance(end);
      return {};
    }
    if (c == '\'' || c == '"') return lex_string();
    return lex_symbol(open);
  }

  Status lex_symbol(std::string& open) {
    static constexpr std::array<std::string_view, 26> kSymbols = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                                  "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                                  ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view symbol : kSymbols) {
      if (!at(symbol)) continue;
      const char c = symbol[0];
      if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
      if (c == ')' || c == ']' || c == '}') {
        if (open.empty() || open.back() != c) return error(fmt::format("unexpected '{}'", c));
        open.pop_back();
      }
      add(Kind::symbol, std::string(symbol));
      advance(at_ + symbol.size());
      return {};
    }
    return error(fmt::format("unexpected character '{}'", source_.substr(at_, character_size(source_, at_))));
  }

  Status lex_number() {
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (source_[at_] == '0' && at_ + 1 < source_.size()) {
      const char kind = static_cast<char>(source_[at_ + 1] | 0x20);
      if (kind == 'x' || kind == 'o' || kind == 'b')
        return lex_integer(kind == 'x' ? 16 : kind == 'o' ? 8 : 2, at_ + 2);
    }
    size_t end = digits_end(at_);
    const size_t integer_end = end;
    if (!after_dot && end + 1 < source_.size() && source_[end] == '.' && is_decimal(source_[end + 1])) {
      end = digits_end(end + 1);
    }
    if (!after_dot && end < source_.size() && (source_[end] | 0x20) == 'e') {
      const size_t sign = end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-') ? 1 : 0;
      if (end + 1 + sign < source_.size() && is_decimal(source_[end + 1 + sign])) end = digits_end(end + 1 + sign);
    }
    if (end == integer_end) return lex_integer(10, at_);
    std::string digits;
    for (size_t i = at_; i < end; ++i) {
      if (source_[i] != '_') digits += source_[i];
    }
    add(Kind::real, "");
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), tokens_.back().real);
    if (parsed.ec != std::errc()) return error("a number is out of range");
    advance(end);
    return {};
  }

  size_t digits_end(size_t position) const {
    while (position < source_.size() &&
           (is_decimal(source_[position]) ||
            (source_[position] == '_' && position + 1 < source_.size() && is_decimal(source_[position + 1])))) {
      ++position;
    }
    return position;
  }

  Status lex_integer(int base, size_t begin) {
    std::string digits;
    size_t end = begin;
    while (end < source_.size()) {
      const char c = source_[end];
      const bool digit = base == 16 ? std::isxdigit(static_cast<unsigned char>(c)) != 0 : c >= '0' && c < '0' + base;
      if (!digit && c != '_') break;
      if (digit) digits += c;
      ++end;
    }
    if (digits.empty()) return error("a number has no digits");
    if (base == 10 && digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of('0') != std::string::npos) {
      return error("a number starts with 0");
    }
    add(Kind::integer, "");
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), tokens_.back().integer, base);
    if (parsed.ec != std::errc()) return error("a number does not fit into 64 bits");
    advance(end);
    return {};
  }

  Status lex_string() {
    const char quote = source_[at_];
    const int begin_line = line_;
    std::string text;
    size_t i = at_ + 1;
    while (i < source_.size() && source_[i] != quote) {
      if (source_[i] != '\\') {
        text += source_[i++];
        continue;
      }
      TRY(lex_escape(i, text));
    }
    if (i >= source_.size()) {
      line_ = begin_line;
      return error("a string is not closed");
    }
    add(Kind::string, std::move(text));
    advance(i + 1);
    return {};
  }

  /// Appends what the escape at `i` means and moves `i` behind it.
  Status lex_escape(size_t& i, std::string& text) const {
    if (i + 1 >= source_.size()) return error("a string is not closed");
    const char c = source_[i + 1];
    static constexpr std::string_view kFrom = "\\'\"abfnrtv";
    static constexpr std::string_view kTo = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t known = kFrom.find(c); known != std::string_view::npos) {
      text += kTo[known];
      i += 2;
      return {};
    }
    if (c == '\n') {
      i += 2;
      return {};
    }
    if (c == 'x') return lex_code(i, 2, 16, text);
    if (c == 'u') return lex_code(i, 4, 16, text);
    if (c == 'U') return lex_code(i, 8, 16, text);
    if (c >= '0' && c <= '7') {
      int length = 1;
      while (length < 3 && i + 1 + static_cast<size_t>(length) < source_.size() &&
             source_[i + 1 + static_cast<size_t>(length)] >= '0' &&
             source_[i + 1 + static_cast<size_t>(length)] <= '7') {
        ++length;
      }
      --i;  // an octal code has no letter in front
      return lex_code(i, length, 8, text);
    }
    text += '\\';
    ++i;
    return {};
  }

  Status lex_code(size_t& i, int length, int base, std::string& text) const {
    const size_t begin = i + 2;
    uint32_t code = 0;
    const char* first = source_.data() + begin;
    const char* last = first + length;
    if (begin + static_cast<size_t>(length) > source_.size()) return error("an escape in a string is cut off");
    const auto parsed = std::from_chars(first, last, code, base);
    if (parsed.ec != std::errc() || parsed.ptr != last) return error("an escape in a string is malformed");
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return error("an escape in a string is no character");
    append_character(text, code);
    i = begin + static_cast<size_t>(length);
    return {};
  }

  std::string source_;
  std::vector<TemplateToken> tokens_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the last tag ended with a newline
};

}  // namespace

Result<std::vector<TemplateToken>> lex_template(std::string_view source) {
  if (!is_valid_utf8(source)) return Error{"the chat template is not UTF-8"};
  return Lexer(normalize_newlines(source)).run();
}

}  // namespace quern
