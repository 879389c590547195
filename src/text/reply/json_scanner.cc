#include "text/reply/json_scanner.h"

#include <fmt/format.h>

namespace quern {
namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

std::string escaped(char c) {
  if (c == '\n') return "\\n";
  if (c == '\t') return "\\t";
  if (c == '\r') return "\\r";
  return fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
}

}  // namespace

JsonScanner::Verdict JsonScanner::add(char c, std::string& out) {
  if (state_ == State::string || state_ == State::escape || state_ == State::hex) return in_string(c, out);
  const Verdict verdict = state_ == State::number ? in_number(c) : state_ == State::word ? in_word(c) : structure(c);
  if (verdict == Verdict::more || verdict == Verdict::last) out += c;
  return verdict;
}

JsonScanner::Verdict JsonScanner::structure(char c) {
  if (is_space(c)) return Verdict::more;
  switch (state_) {
    case State::first_item:
      if (c == ']') return close('[');
      return value(c);
    case State::value: return value(c);
    case State::first_key:
      if (c == '}') return close('{');
      [[fallthrough]];
    case State::key:
      if (c != '"') return Verdict::bad;
      state_ = State::string;
      is_key_ = true;
      return Verdict::more;
    case State::colon:
      if (c != ':') return Verdict::bad;
      state_ = State::value;
      return Verdict::more;
    default: break;
  }
  if (c == '}') return close('{');
  if (c == ']') return close('[');
  if (c != ',') return Verdict::bad;
  state_ = open_.back() == '{' ? State::key : State::value;
  return Verdict::more;
}

JsonScanner::Verdict JsonScanner::value(char c) {
  switch (c) {
    case '{': return open(c, State::first_key);
    case '[': return open(c, State::first_item);
    case '"':
      state_ = State::string;
      is_key_ = false;
      return Verdict::more;
    case 't': word_ = "rue"; break;
    case 'f': word_ = "alse"; break;
    case 'n': word_ = "ull"; break;
    default:
      if (c != '-' && !is_digit(c)) return Verdict::bad;
      state_ = State::number;
      number_ = c == '-' ? Number::minus : c == '0' ? Number::zero : Number::digits;
      return Verdict::more;
  }
  state_ = State::word;
  return Verdict::more;
}

JsonScanner::Verdict JsonScanner::in_string(char c, std::string& out) {
  if (c == '\xFF') return Verdict::bad;  // no character: a special token
  if (state_ == State::string && static_cast<unsigned char>(c) < 0x20) {
    out += escaped(c);
    return Verdict::more;
  }
  if (state_ == State::hex) {
    if (!is_hex(c)) return Verdict::bad;
    if (--hex_left_ == 0) state_ = State::string;
  } else if (state_ == State::escape) {
    if (std::string_view("\"\\/bfnrtu").find(c) == std::string_view::npos) return Verdict::bad;
    hex_left_ = 4;
    state_ = c == 'u' ? State::hex : State::string;
  } else if (c == '\\') {
    state_ = State::escape;
  } else if (c == '"') {
    out += c;
    if (!is_key_) return ended();
    state_ = State::colon;
    return Verdict::more;
  }
  out += c;
  return Verdict::more;
}

bool JsonScanner::number_is_whole() const {
  return number_ == Number::zero || number_ == Number::digits || number_ == Number::fraction ||
         number_ == Number::exponent_digits;
}

JsonScanner::Verdict JsonScanner::in_number(char c) {
  const bool in_digits = number_ != Number::minus && number_ != Number::zero;
  if (is_digit(c) && number_ != Number::zero) {
    if (number_ == Number::minus) {
      number_ = c == '0' ? Number::zero : Number::digits;
    } else if (number_ == Number::point) {
      number_ = Number::fraction;
    } else if (number_ == Number::exponent || number_ == Number::exponent_sign) {
      number_ = Number::exponent_digits;
    }
    return Verdict::more;
  }
  if (c == '.' && (number_ == Number::zero || number_ == Number::digits)) {
    number_ = Number::point;
    return Verdict::more;
  }
  if ((c == 'e' || c == 'E') && number_is_whole() && number_ != Number::exponent_digits) {
    number_ = Number::exponent;
    return Verdict::more;
  }
  if ((c == '+' || c == '-') && in_digits && number_ == Number::exponent) {
    number_ = Number::exponent_sign;
    return Verdict::more;
  }
  if (!number_is_whole()) return Verdict::bad;
  if (open_.empty()) return Verdict::after;
  state_ = State::after_value;
  return structure(c);
}

JsonScanner::Verdict JsonScanner::in_word(char c) {
  if (c != *word_) return Verdict::bad;
  ++word_;
  return *word_ == 0 ? ended() : Verdict::more;
}

JsonScanner::Verdict JsonScanner::open(char bracket, State then) {
  if (open_.size() == kMaxDepth) return Verdict::bad;
  open_ += bracket;
  state_ = then;
  return Verdict::more;
}

JsonScanner::Verdict JsonScanner::close(char bracket) {
  if (open_.empty() || open_.back() != bracket) return Verdict::bad;
  open_.pop_back();
  return ended();
}

JsonScanner::Verdict JsonScanner::ended() {
  state_ = State::after_value;
  return open_.empty() ? Verdict::last : Verdict::more;
}

}  // namespace quern
