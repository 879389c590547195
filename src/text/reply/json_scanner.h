// JsonScanner: checks one JSON value byte by byte as it arrives. One thread at a time.
#pragma once

#include <cstdint>
#include <string>

namespace quern {

/// Raw control characters in strings, which models write, are turned into escapes; all else must be strict JSON.
class JsonScanner {
 public:
  enum class Verdict : uint8_t {
    more,   // part of the value, which goes on
    last,   // part of the value, and its end
    after,  // not part of it: the value ended before this byte
    bad,    // no JSON
  };

  /// Appends what is part of the value to `out`.
  Verdict add(char c, std::string& out);
  /// Whether the value is whole if nothing follows: a number at the end of a text.
  bool could_end() const { return open_.empty() && state_ == State::number && number_is_whole(); }

 private:
  static constexpr size_t kMaxDepth = 60;
  enum class State : uint8_t {
    value,        // a value must come
    first_item,   // a value, or the end of an array
    first_key,    // a key, or the end of an object
    key,          // a key must come
    colon,        // after a key
    after_value,  // a comma, or the end of what is open
    string,       // inside a string
    escape,       // after a backslash
    hex,          // inside \uXXXX
    number,       // inside a number
    word,         // inside true, false or null
  };
  enum class Number : uint8_t { minus, zero, digits, point, fraction, exponent, exponent_sign, exponent_digits };

  Verdict structure(char c);
  Verdict value(char c);
  Verdict in_string(char c, std::string& out);
  Verdict in_number(char c);
  Verdict in_word(char c);
  Verdict open(char bracket, State then);
  Verdict close(char bracket);
  Verdict ended();
  bool number_is_whole() const;

  std::string open_;  // '{' and '[' around the place
  State state_ = State::value;
  Number number_ = Number::minus;
  bool is_key_ = false;  // of the string being read
  int hex_left_ = 0;
  const char* word_ = "";  // what must still come of it
};

}  // namespace quern
