#include "text/pattern/scanners.h"

#include <optional>

#include "text/pattern/unicode.h"

namespace quern {
namespace {

/// A character with its class; `end` of the text is a class of its own.
struct Seen {
  std::optional<CharClass> kind;
  const char* after = nullptr;
  bool is(CharClass wanted) const { return kind == wanted; }
};

inline Seen see(const char* at, const char* end) {
  if (at == end) return {std::nullopt, at};
  const auto byte = static_cast<unsigned char>(*at);
  if (byte < 0x80) return {ascii_classes[byte], at + 1};
  const Character character = decode_utf8(at);
  return {non_ascii_class(character.code), at + character.length};
}

inline const char* skip(CharClass kind, const char* at, const char* end) {
  for (Seen seen = see(at, end); seen.is(kind); seen = see(at, end)) at = seen.after;
  return at;
}

inline bool is_newline(char c) { return c == '\r' || c == '\n'; }

/// The length of 's 't 're 've 'm 'll 'd at `at`, which is an apostrophe, or 0.
size_t contraction(std::string_view text, bool any_case) {
  const auto letter = [&](size_t i) -> char {
    if (i >= text.size()) return '\0';
    const char c = text[i];
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  };
  const char first = letter(1);
  const char second = letter(2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if ((first == 'r' || first == 'v') && second == 'e') return 3;
  if (first == 'l' && second == 'l') return 3;
  if (any_case && text.substr(1).starts_with("\u017F")) return 3;  // the long s is an s too
  return 0;
}

/// \s+(?!\S)|\s+ at whitespace: a run leaves its last character to the word that follows. With `lines`, \s*[\r\n]+
/// comes first: a run that holds line ends stops after the last of them.
const char* whitespace(const char* at, const char* end, bool lines) {
  const char* last = at;
  const char* line_end = nullptr;
  const char* stop = at;
  for (Seen seen = see(at, end); seen.is(CharClass::space); seen = see(stop, end)) {
    last = stop;
    if (is_newline(*stop)) line_end = seen.after;
    stop = seen.after;
  }
  if (lines && line_end != nullptr) return line_end;
  return stop == end || last == at ? stop : last;
}

const char* gpt2_piece(const char* at, const char* end) {
  if (*at == '\'') {
    if (const size_t length = contraction({at, end}, false)) return at + length;
  }
  Seen seen = see(at, end);
  if (*at == ' ') {
    const Seen second = see(seen.after, end);
    if (second.kind && !second.is(CharClass::space)) seen = second;
  }
  if (seen.is(CharClass::space)) return whitespace(at, end, false);
  return skip(*seen.kind, seen.after, end);
}

/// The end of a number that went on until `at` with one character.
template <int max_digits>
const char* numbers_piece(const char* at, const char* end) {
  for (int digits = 1; digits < max_digits; ++digits) {
    const Seen next = see(at, end);
    if (!next.is(CharClass::number)) break;
    at = next.after;
  }
  return at;
}

/// With `marks`, marks count as letters.
template <bool marks>
Seen see_letters(const char* at, const char* end) {
  Seen seen = see(at, end);
  if (marks && seen.is(CharClass::other) && static_cast<unsigned char>(*at) >= 0x80 &&
      non_ascii_case(decode_utf8(at).code) == LetterCase::either) {
    seen.kind = CharClass::letter;
  }
  return seen;
}

template <bool marks>
const char* skip_letters(CharClass kind, const char* at, const char* end) {
  for (Seen seen = see_letters<marks>(at, end); seen.is(kind); seen = see_letters<marks>(at, end)) at = seen.after;
  return at;
}

template <int max_digits, bool marks>
const char* llama3_piece(const char* at, const char* end) {
  if (*at == '\'') {
    if (const size_t length = contraction({at, end}, true)) return at + length;
  }
  const Seen first = see_letters<marks>(at, end);
  if (first.is(CharClass::letter)) return skip_letters<marks>(CharClass::letter, first.after, end);
  if (first.is(CharClass::number)) return numbers_piece<max_digits>(first.after, end);
  const Seen second = see_letters<marks>(first.after, end);
  if (second.is(CharClass::letter) && !is_newline(*at))
    return skip_letters<marks>(CharClass::letter, second.after, end);
  if (first.is(CharClass::other) || (*at == ' ' && second.is(CharClass::other))) {
    const char* stop = skip_letters<marks>(CharClass::other, first.after, end);
    while (stop != end && is_newline(*stop)) ++stop;
    return stop;
  }
  return whitespace(at, end, true);
}

/// A character with its case.
struct Cased {
  LetterCase kind = LetterCase::none;
  const char* after = nullptr;
};

inline Cased see_case(const char* at, const char* end) {
  if (at == end) return {LetterCase::none, at};
  const auto byte = static_cast<unsigned char>(*at);
  if (byte < 0x80) {
    const bool upper = byte >= 'A' && byte <= 'Z';
    const bool lower = byte >= 'a' && byte <= 'z';
    return {upper ? LetterCase::upper : lower ? LetterCase::lower : LetterCase::none, at + 1};
  }
  const Character character = decode_utf8(at);
  return {non_ascii_case(character.code), at + character.length};
}

/// A word at `at`: what may be upper case, then what may be lower case. Its end, or nullptr. It ends in something that
/// may be lower case, or, when `ends_upper`, just before that.
const char* cased_word(const char* at, const char* end, bool ends_upper) {
  const char* last_either = nullptr;
  const char* stop = at;
  Cased seen = see_case(stop, end);
  for (; seen.kind == LetterCase::upper || seen.kind == LetterCase::either; seen = see_case(stop, end)) {
    if (seen.kind == LetterCase::either) last_either = seen.after;
    stop = seen.after;
  }
  if (ends_upper) return stop == at ? nullptr : stop;
  if (seen.kind != LetterCase::lower) return last_either;
  for (; seen.kind == LetterCase::lower || seen.kind == LetterCase::either; seen = see_case(stop, end)) {
    stop = seen.after;
  }
  return stop;
}

/// The word at `at`, perhaps behind one character that is no letter, number or line end; or nullptr.
const char* o200k_word(const char* at, const char* end, Seen first) {
  const bool may_lead = !first.is(CharClass::letter) && !first.is(CharClass::number) && !is_newline(*at);
  for (const bool ends_upper : {false, true}) {
    const char* stop = may_lead ? cased_word(first.after, end, ends_upper) : nullptr;
    if (stop == nullptr) stop = cased_word(at, end, ends_upper);
    if (stop != nullptr) return stop;
  }
  return nullptr;
}

template <int max_digits, bool contractions>
const char* o200k_piece(const char* at, const char* end) {
  const Seen first = see(at, end);
  if (const char* stop = o200k_word(at, end, first)) {
    const bool apostrophe = contractions && stop != end && *stop == '\'';
    return apostrophe ? stop + contraction({stop, end}, true) : stop;
  }
  if (first.is(CharClass::number)) return numbers_piece<max_digits>(first.after, end);
  const Seen second = see(first.after, end);
  if (first.is(CharClass::other) || (*at == ' ' && second.is(CharClass::other))) {
    const char* stop = skip(CharClass::other, first.after, end);
    while (stop != end && (is_newline(*stop) || *stop == '/')) ++stop;
    return stop;
  }
  return whitespace(at, end, true);
}

template <const char* (*piece)(const char*, const char*)>
void scan(std::string_view text, std::vector<Span>& pieces) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  for (const char* at = begin; at != end;) {
    const char* stop = piece(at, end);
    pieces.push_back({static_cast<uint32_t>(at - begin), static_cast<uint32_t>(stop - begin)});
    at = stop;
  }
}

/// Where each character of the run of what `belongs` at `at` starts; `at` becomes the end of the run.
template <bool (*belongs)(char32_t)>
void take_run(std::string_view text, uint32_t& at, std::vector<uint32_t>& starts) {
  starts.clear();
  while (at < text.size() && belongs(decode_utf8(text.data() + at).code)) {
    starts.push_back(at);
    at += decode_utf8(text.data() + at).length;
  }
}

/// Every run of what `belongs`, in groups of three from its end. With `at_word_end`, not before a further part of a
/// word.
template <bool (*belongs)(char32_t), bool at_word_end>
void scan_groups(std::string_view text, std::vector<Span>& pieces) {
  std::vector<uint32_t> starts;
  for (uint32_t at = 0; at < text.size();) {
    take_run<belongs>(text, at, starts);
    const bool in_word = at_word_end && at < text.size() && is_regex_word(decode_utf8(text.data() + at).code);
    if (!in_word) {
      for (size_t i = 0; i < starts.size();) {
        const size_t next = i + ((starts.size() - i) % 3 == 0 ? 3 : (starts.size() - i) % 3);
        pieces.push_back({starts[i], next < starts.size() ? starts[next] : at});
        i = next;
      }
    }
    if (at < text.size()) at += decode_utf8(text.data() + at).length;
  }
}

/// Every place from which a run of digits goes on in whole groups of three: matches of no width.
void scan_group_starts(std::string_view text, std::vector<Span>& pieces) {
  std::vector<uint32_t> starts;
  for (uint32_t at = 0; at < text.size();) {
    take_run<is_digit>(text, at, starts);
    for (size_t i = starts.size() % 3; i < starts.size(); i += 3) pieces.push_back({starts[i], starts[i]});
    if (at < text.size()) at += decode_utf8(text.data() + at).length;
  }
}

}  // namespace

Scanner scanner_for(std::string_view pattern) {
  if (pattern == gpt2_pattern) return scan<gpt2_piece>;
  if (pattern == llama3_pattern) return scan<llama3_piece<3, false>>;
  if (pattern == qwen2_pattern) return scan<llama3_piece<1, false>>;
  if (pattern == qwen35_pattern) return scan<llama3_piece<1, true>>;
  if (pattern == o200k_pattern) return scan<o200k_piece<3, true>>;
  if (pattern == tekken_pattern) return scan<o200k_piece<1, false>>;
  if (pattern == grouped_digits_pattern) return scan_groups<is_digit, true>;
  if (pattern == grouped_numbers_pattern) return scan_groups<is_number, false>;
  if (pattern == digit_groups_pattern) return scan_group_starts;
  return nullptr;
}

}  // namespace quern
