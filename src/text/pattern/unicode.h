// Unicode: UTF-8, and the classes of characters that tokenizers ask for. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace quern {

inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";

bool is_utf8(std::string_view text);
/// `text` with each maximal part that is no UTF-8 as one U+FFFD.
std::string repair_utf8(std::string_view text);
/// Takes the front of `bytes` up to its last complete character, repaired; what could still become a character stays,
/// unless this is the `last` call.
std::string take_utf8(std::string& bytes, bool last);

struct Character {
  char32_t code = 0;
  uint32_t length = 0;  // in bytes
};

/// The character at `at`, which stands in valid UTF-8.
inline Character decode_utf8(const char* at) {
  const auto byte = [at](int i) { return static_cast<char32_t>(static_cast<unsigned char>(at[i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

/// The start of the character that ends before `at`; `at` is not the start of `text`.
inline size_t previous_character(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

void append_utf8(std::string& out, char32_t code);

/// What the splitting patterns distinguish: \p{L}, \p{N}, \s and all else, as of Unicode 14 (like Oniguruma 6.9.8).
enum class CharClass : uint8_t { letter, number, space, other };

CharClass non_ascii_class(char32_t code);

inline constexpr std::array<CharClass, 128> ascii_classes = [] {
  std::array<CharClass, 128> classes{};
  for (size_t c = 0; c < classes.size(); ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    classes[c] = letter                 ? CharClass::letter
                 : c >= '0' && c <= '9' ? CharClass::number
                 : space                ? CharClass::space
                                        : CharClass::other;
  }
  return classes;
}();

inline CharClass char_class(char32_t code) { return code < 128 ? ascii_classes[code] : non_ascii_class(code); }

inline bool is_space(char32_t code) { return char_class(code) == CharClass::space; }
inline bool is_number(char32_t code) { return char_class(code) == CharClass::number; }
bool is_word(char32_t code);             // \w: alphabetic characters, marks, digits, connectors, joiners
bool is_regex_word(char32_t code);       // Oniguruma's \w outside classes: no joiners, but the numbers of Latin-1
bool is_digit(char32_t code);            // \p{Nd}
bool is_mark(char32_t code);             // \p{M}
bool is_control(char32_t code);          // \p{Cc}, \p{Cf} and \p{Co}
bool is_nonspacing_mark(char32_t code);  // \p{Mn}, as of Unicode 8
bool is_punctuation(char32_t code);      // \p{P} as of Unicode 8, and the ASCII symbols

/// What patterns that look at case distinguish, as of Unicode 14: \p{Lu} and \p{Lt}, \p{Ll}, what counts as either
/// (\p{Lm}, \p{Lo}, \p{M}), and all else.
enum class LetterCase : uint8_t { upper, lower, either, none };

LetterCase non_ascii_case(char32_t code);

inline size_t count_characters(std::string_view text) {
  size_t count = 0;
  for (const char byte : text) count += (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  return count;
}

}  // namespace quern
