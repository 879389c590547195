// Text: a string of a template that knows which of its bytes the template wrote and which came from outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quern {

struct Text {
  std::string bytes;          // UTF-8
  bool trusted = true;        // trust of the first byte
  bool markup = false;        // went through `safe` or `escape`: joining by `+` escapes the other side, as in Jinja
  std::vector<size_t> flips;  // ascending positions in `bytes` (not 0, not the end) where trust changes

  Text() = default;
  explicit Text(std::string text, bool is_trusted = true) : bytes(std::move(text)), trusted(is_trusted) {}

  bool empty() const { return bytes.empty(); }
  size_t size() const { return bytes.size(); }
  std::string_view view() const { return bytes; }

  bool trusted_at(size_t position) const;
  bool trusted_at_end() const { return trusted != (flips.size() % 2 == 1); }

  void append(std::string_view text, bool is_trusted);
  void append(const Text& other) { append(other, 0, other.size()); }
  /// Appends bytes [begin, end) of `other`.
  void append(const Text& other, size_t begin, size_t end);
  Text slice(size_t begin, size_t end) const;

  /// Calls f(run, trusted) for every stretch of equal trust.
  template <typename F>
  void each_run(F f) const {
    size_t begin = 0;
    bool run_trusted = trusted;
    for (size_t i = 0; i <= flips.size(); ++i) {
      const size_t end = i < flips.size() ? flips[i] : bytes.size();
      if (end > begin) f(std::string_view(bytes).substr(begin, end - begin), run_trusted);
      begin = end;
      run_trusted = !run_trusted;
    }
  }
};

/// Code points of UTF-8 text (bytes that are no continuation).
size_t count_characters(std::string_view text);
/// The byte position of character `index`; the size of the text when it has no more than `index` characters.
size_t character_offset(std::string_view text, size_t index);
/// Bytes of the character that starts at `position` (at least 1, never beyond the end).
size_t character_size(std::string_view text, size_t position);
/// The character at `position`; U+FFFD for bytes that are no UTF-8.
uint32_t character_at(std::string_view text, size_t position);
void append_character(std::string& out, uint32_t character);
bool is_valid_utf8(std::string_view text);

/// Unicode properties as Python's str methods see them.
bool is_space(uint32_t character);
bool is_line_break(uint32_t character);
bool is_printable(uint32_t character);
bool is_letter(uint32_t character);
bool is_digit(uint32_t character);
bool is_word(uint32_t character);
bool is_upper(uint32_t character);
bool is_lower(uint32_t character);

enum class Case { lower, upper, title, capitalize, swap };
/// The text in another case; each character keeps its trust.
Text change_case(const Text& text, Case wanted);

/// HTML escapes of & < > " ' as MarkupSafe writes them.
Text escape_html(const Text& text);

}  // namespace quern
