#include "text/pattern/unicode.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utf8proc.h>

namespace quern {
namespace {

/// Looks at the sequence that starts at `at`: its length when it is a character, minus the length of the maximal part
/// that is none, or 0 when it may become one with more bytes.
int sequence_length(const char* at, size_t left) {
  const auto byte = [at](size_t i) { return static_cast<unsigned char>(at[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return -1;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned low = 0x80;
  unsigned high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (size_t i = 1; i < length; ++i) {
    if (i == left) return 0;
    if (byte(i) < low || byte(i) > high) return -static_cast<int>(i);
    low = 0x80;
    high = 0xBF;
  }
  return static_cast<int>(length);
}

/// The number of ASCII bytes at the front, found eight at a time.
size_t ascii_prefix(std::string_view text) {
  size_t at = 0;
  for (uint64_t word = 0; at + 8 <= text.size(); at += 8) {
    std::memcpy(&word, text.data() + at, 8);
    if ((word & 0x8080808080808080U) != 0) break;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

/// Letters, marks and numbers that Unicode 15 added, which Oniguruma 6.9.8 and PCRE2 10.42 do not know.
bool newer_than_unicode_14(char32_t code) {
  struct Range {
    char32_t first, last;
  };
  static constexpr Range ranges[] = {{0xCF3, 0xCF3},     {0xECE, 0xECE},     {0x10EFD, 0x10EFF}, {0x1123F, 0x11241},
                                     {0x11F00, 0x11F59}, {0x1342F, 0x1342F}, {0x13440, 0x13455}, {0x1B132, 0x1B132},
                                     {0x1B155, 0x1B155}, {0x1D2C0, 0x1D2D3}, {0x1DF25, 0x1DF2A}, {0x1E030, 0x1E08F},
                                     {0x1E4D0, 0x1E4F9}, {0x2B739, 0x2B739}, {0x31350, 0x323AF}};
  return code >= 0xCF3 &&
         std::ranges::any_of(ranges, [code](Range range) { return code >= range.first && code <= range.last; });
}

/// Marks, punctuation and controls that Unicode 9 to 15 added, which the library of the BERT parts does not know. What
/// lies between them is neither.
bool newer_than_unicode_8(char32_t code) {
  static constexpr char32_t ranges[][2] = {
      {0x61D, 0x61D},     {0x7FD, 0x7FD},     {0x890, 0x8E2},     {0x9FD, 0x9FE},     {0xA76, 0xA76},
      {0xAFA, 0xAFF},     {0xB55, 0xB55},     {0xC04, 0xC3C},     {0xC77, 0xC77},     {0xC84, 0xC84},
      {0xCF3, 0xD00},     {0xD3B, 0xD3C},     {0xD81, 0xD81},     {0xEBA, 0xEBA},     {0xECE, 0xECE},
      {0x180F, 0x1886},   {0x1ABF, 0x1ACE},   {0x1B4E, 0x1B4F},   {0x1B7D, 0x1B7E},   {0x1DF6, 0x1DFB},
      {0x2E43, 0x2E5D},   {0xA82C, 0xA82C},   {0xA8C5, 0xA8C5},   {0xA8FF, 0xA8FF},   {0xA9BD, 0xA9BD},
      {0x10D24, 0x10F89}, {0x11070, 0x11074}, {0x110C2, 0x110CD}, {0x111C9, 0x111C9}, {0x111CF, 0x111CF},
      {0x1123E, 0x11241}, {0x1133B, 0x1133B}, {0x11438, 0x1145E}, {0x11660, 0x1166C}, {0x116B9, 0x116B9},
      {0x1182F, 0x11FFF}, {0x12FF1, 0x13455}, {0x16E97, 0x16F4F}, {0x16FE2, 0x16FE4}, {0x1CF00, 0x1CF46},
      {0x1E000, 0x1E4EF}, {0x1E944, 0x1E95F}};
  const auto* const found =
      std::ranges::upper_bound(ranges, code, {}, [](const char32_t(&range)[2]) { return range[0]; });
  return found != std::begin(ranges) && code <= (*std::prev(found))[1];
}

utf8proc_category_t category(char32_t code) { return utf8proc_category(static_cast<utf8proc_int32_t>(code)); }

}  // namespace

bool is_utf8(std::string_view text) {
  for (;;) {
    text.remove_prefix(ascii_prefix(text));
    if (text.empty()) return true;
    const int length = sequence_length(text.data(), text.size());
    if (length <= 0) return false;
    text.remove_prefix(static_cast<size_t>(length));
  }
}

std::string repair_utf8(std::string_view text) {
  std::string bytes(text);
  return take_utf8(bytes, true);
}

std::string take_utf8(std::string& bytes, bool last) {
  std::string out;
  out.reserve(bytes.size());
  size_t at = 0;
  while (at < bytes.size()) {
    const int length = sequence_length(bytes.data() + at, bytes.size() - at);
    if (length == 0 && !last) break;
    const size_t taken = length == 0 ? bytes.size() - at : static_cast<size_t>(std::abs(length));
    out += length > 0 ? std::string_view(bytes).substr(at, taken) : replacement_character;
    at += taken;
  }
  bytes.erase(0, at);
  return out;
}

void append_utf8(std::string& out, char32_t code) {
  const auto tail = [code](int shift) { return static_cast<char>(0x80 | ((code >> shift) & 0x3F)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += {static_cast<char>(0xC0 | (code >> 6)), tail(0)};
  } else if (code < 0x10000) {
    out += {static_cast<char>(0xE0 | (code >> 12)), tail(6), tail(0)};
  } else {
    out += {static_cast<char>(0xF0 | (code >> 18)), tail(12), tail(6), tail(0)};
  }
}

CharClass non_ascii_class(char32_t code) {
  const utf8proc_category_t kind = category(code);
  if (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO) {
    return newer_than_unicode_14(code) ? CharClass::other : CharClass::letter;
  }
  if (kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO) {
    return newer_than_unicode_14(code) ? CharClass::other : CharClass::number;
  }
  const bool separator = kind >= UTF8PROC_CATEGORY_ZS && kind <= UTF8PROC_CATEGORY_ZP;
  return separator || code == 0x85 ? CharClass::space : CharClass::other;
}

LetterCase non_ascii_case(char32_t code) {
  switch (category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT: return newer_than_unicode_14(code) ? LetterCase::none : LetterCase::upper;
    case UTF8PROC_CATEGORY_LL: return newer_than_unicode_14(code) ? LetterCase::none : LetterCase::lower;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return newer_than_unicode_14(code) ? LetterCase::none : LetterCase::either;
    default: return LetterCase::none;
  }
}

bool is_word(char32_t code) {
  if (code < 128)
    return ascii_classes[code] == CharClass::letter || ascii_classes[code] == CharClass::number || code == '_';
  const bool circled = (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
                       (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
  if (circled || code == 0x200C || code == 0x200D || is_mark(code)) return true;
  const utf8proc_category_t kind = category(code);
  return (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO) || kind == UTF8PROC_CATEGORY_ND ||
         kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_PC;
}

bool is_regex_word(char32_t code) {
  const bool latin_number = code == 0xB2 || code == 0xB3 || code == 0xB9 || (code >= 0xBC && code <= 0xBE);
  const bool joiner = code == 0x200C || code == 0x200D;
  return latin_number || (is_word(code) && !joiner && !newer_than_unicode_14(code));
}

bool is_digit(char32_t code) { return is_number(code) && category(code) == UTF8PROC_CATEGORY_ND; }

bool is_mark(char32_t code) {
  const utf8proc_category_t kind = category(code);
  return kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME;
}

bool is_control(char32_t code) {
  if (code < 128) return code < ' ' || code == 127;
  const utf8proc_category_t kind = category(code);
  return kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CO ||
         (kind == UTF8PROC_CATEGORY_CF && !newer_than_unicode_8(code));
}

bool is_nonspacing_mark(char32_t code) {
  return code >= 0x300 && category(code) == UTF8PROC_CATEGORY_MN && !newer_than_unicode_8(code);
}

bool is_punctuation(char32_t code) {
  if (code < 128) return code > ' ' && code < 127 && ascii_classes[code] == CharClass::other;
  const utf8proc_category_t kind = category(code);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO && !newer_than_unicode_8(code);
}

}  // namespace quern
