// The byte alphabet of byte-level BPE: every byte as a printable character, so that vocabularies are plain text.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/pattern/unicode.h"

namespace quern {

/// The character that stands for each byte: printable Latin-1 for itself, the other 68 from U+0100 on.
inline constexpr std::array<char16_t, 256> byte_characters = [] {
  std::array<char16_t, 256> characters{};
  char16_t next = 0x100;
  for (size_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    characters[byte] = printable ? static_cast<char16_t>(byte) : next++;
  }
  return characters;
}();

inline constexpr std::array<int16_t, 0x144> character_bytes = [] {
  std::array<int16_t, 0x144> bytes{};
  bytes.fill(-1);
  for (size_t byte = 0; byte < 256; ++byte) bytes[byte_characters[byte]] = static_cast<int16_t>(byte);
  return bytes;
}();

inline void append_as_characters(std::string& out, std::string_view bytes) {
  for (const char byte : bytes) append_utf8(out, byte_characters[static_cast<unsigned char>(byte)]);
}

/// Appends the bytes that `text` (valid UTF-8) spells; false, and nothing appended, when a character is not of the
/// alphabet.
inline bool append_as_bytes(std::string& out, std::string_view text) {
  const size_t start = out.size();
  for (size_t at = 0; at < text.size();) {
    const Character character = decode_utf8(text.data() + at);
    const int byte = character.code < character_bytes.size() ? character_bytes[character.code] : -1;
    if (byte < 0) {
      out.resize(start);
      return false;
    }
    out += static_cast<char>(byte);
    at += character.length;
  }
  return true;
}

}  // namespace quern
