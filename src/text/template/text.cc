#include "text/template/text.h"

#include <algorithm>
#include <utf8proc.h>

namespace quern {

bool Text::trusted_at(size_t position) const {
  const auto passed = std::upper_bound(flips.begin(), flips.end(), position) - flips.begin();
  return trusted != (passed % 2 == 1);
}

void Text::append(std::string_view text, bool is_trusted) {
  if (text.empty()) return;
  if (bytes.empty()) {
    trusted = is_trusted;
    flips.clear();
  } else if (trusted_at_end() != is_trusted) {
    flips.push_back(bytes.size());
  }
  bytes += text;
}

void Text::append(const Text& other, size_t begin, size_t end) {
  if (begin >= end) return;
  auto flip = std::upper_bound(other.flips.begin(), other.flips.end(), begin);
  const auto passed = flip - other.flips.begin();
  bool run_trusted = other.trusted != (passed % 2 == 1);
  const std::string_view all = other.bytes;
  while (begin < end) {
    const size_t run_end = flip == other.flips.end() ? end : std::min(*flip++, end);
    append(all.substr(begin, run_end - begin), run_trusted);
    begin = run_end;
    run_trusted = !run_trusted;
  }
}

Text Text::slice(size_t begin, size_t end) const {
  Text result;
  result.markup = markup;
  result.append(*this, begin, end);
  return result;
}

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

size_t character_offset(std::string_view text, size_t index) {
  size_t position = 0;
  while (position < text.size() && index > 0) {
    position += character_size(text, position);
    --index;
  }
  return position;
}

size_t character_size(std::string_view text, size_t position) {
  size_t end = position + 1;
  while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;
  return end - position;
}

uint32_t character_at(std::string_view text, size_t position) {
  const auto first = static_cast<unsigned char>(text[position]);
  if (first < 0x80) return first;
  utf8proc_int32_t character = -1;
  const auto left = static_cast<utf8proc_ssize_t>(text.size() - position);
  utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + position), left, &character);
  return character < 0 ? 0xFFFD : static_cast<uint32_t>(character);
}

void append_character(std::string& out, uint32_t character) {
  utf8proc_uint8_t buffer[4];
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(character), buffer);
  out.append(reinterpret_cast<const char*>(buffer), static_cast<size_t>(length));
}

bool is_valid_utf8(std::string_view text) {
  size_t position = 0;
  while (position < text.size()) {
    utf8proc_int32_t character = -1;
    const auto left = static_cast<utf8proc_ssize_t>(text.size() - position);
    const auto length =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + position), left, &character);
    if (length <= 0) return false;
    position += static_cast<size_t>(length);
  }
  return true;
}

namespace {
utf8proc_category_t category(uint32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }
}  // namespace

bool is_space(uint32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_break(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_printable(uint32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7F;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

bool is_letter(uint32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_word(uint32_t c) {
  const auto kind = category(c);
  return c == '_' || is_letter(c) || (kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO);
}

bool is_upper(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }
bool is_lower(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_LL; }

namespace {

constexpr uint32_t kSharpS = 0xDF;  // the one common letter whose capital is two letters

void append_upper(std::string& out, uint32_t c) {
  if (c == kSharpS) {
    out += "SS";
  } else {
    append_character(out, static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_lower(std::string& out, uint32_t c) {
  append_character(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

void append_title(std::string& out, uint32_t c) {
  if (c == kSharpS) {
    out += "Ss";
    return;
  }
  append_character(out, static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
}

void append_cased(std::string& out, uint32_t c, Case wanted, bool first, bool after_letter) {
  switch (wanted) {
    case Case::lower: return append_lower(out, c);
    case Case::upper: return append_upper(out, c);
    case Case::capitalize: return first ? append_title(out, c) : append_lower(out, c);
    case Case::title: return after_letter ? append_lower(out, c) : append_title(out, c);
    case Case::swap: return is_upper(c) ? append_lower(out, c) : append_upper(out, c);
  }
}

}  // namespace

Text change_case(const Text& text, Case wanted) {
  Text result;
  result.markup = text.markup;
  bool first = true;
  bool after_letter = false;
  text.each_run([&](std::string_view run, bool trusted) {
    std::string changed;
    changed.reserve(run.size());
    for (size_t i = 0; i < run.size(); i += character_size(run, i)) {
      const uint32_t c = character_at(run, i);
      append_cased(changed, c, wanted, first, after_letter);
      first = false;
      after_letter = is_letter(c);
    }
    result.append(changed, trusted);
  });
  return result;
}

Text escape_html(const Text& text) {
  Text result;
  text.each_run([&](std::string_view run, bool trusted) {
    std::string escaped;
    for (const char c : run) {
      switch (c) {
        case '&': escaped += "&amp;"; break;
        case '<': escaped += "&lt;"; break;
        case '>': escaped += "&gt;"; break;
        case '"': escaped += "&#34;"; break;
        case '\'': escaped += "&#39;"; break;
        default: escaped += c;
      }
    }
    result.append(escaped, trusted);
  });
  result.markup = true;
  return result;
}

}  // namespace quern
