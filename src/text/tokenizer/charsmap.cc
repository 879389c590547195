#include "text/tokenizer/charsmap.h"

#include <array>
#include <cstring>
#include <utf8proc.h>

#include "text/pattern/unicode.h"

namespace quern {
namespace {

constexpr size_t max_charsmap_bytes = size_t{64} << 20;

/// What the bits of a unit of the double array say.
uint32_t label_of(uint32_t unit) { return unit & 0x800000FFU; }
bool has_value(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFFU; }
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 0x200U) >> 6); }

/// The end of the grapheme cluster that starts at `begin`.
size_t cluster_end(std::string_view text, size_t begin) {
  Character last = decode_utf8(text.data() + begin);
  size_t end = begin + last.length;
  utf8proc_int32_t state = 0;
  while (end < text.size()) {
    const Character next = decode_utf8(text.data() + end);
    const bool both_ascii = last.code < 128 && next.code < 128;
    if (both_ascii && !(last.code == '\r' && next.code == '\n')) break;
    const auto from = static_cast<utf8proc_int32_t>(last.code);
    if (utf8proc_grapheme_break_stateful(from, static_cast<utf8proc_int32_t>(next.code), &state)) break;
    end += next.length;
    last = next;
  }
  return end;
}

class Precompiled final : public Normalization {
 public:
  explicit Precompiled(Charsmap charsmap) : charsmap_(std::move(charsmap)) {
    for (size_t c = 0; c < plain_.size(); ++c) {
      const auto character = static_cast<char>(c);
      plain_[c] = !charsmap_.shortest({&character, 1});
    }
  }

  Status apply(std::string& text) const override {
    std::string out;
    out.reserve(text.size() + 16);
    for (size_t begin = 0; begin < text.size();) {
      if (is_plain(text, begin)) {
        out += text[begin++];
        continue;
      }
      const size_t end = cluster_end(text, begin);
      change(out, std::string_view(text).substr(begin, end - begin));
      begin = end;
    }
    text = std::move(out);
    return {};
  }

 private:
  /// An ASCII character that is a cluster by itself and stays what it is.
  bool is_plain(std::string_view text, size_t at) const {
    const auto ascii = [&](size_t i) { return static_cast<unsigned char>(text[i]) < 128; };
    const bool alone = at + 1 == text.size() || (ascii(at + 1) && text[at] != '\r');
    return ascii(at) && alone && plain_[static_cast<size_t>(text[at])];
  }

  void change(std::string& out, std::string_view cluster) const {
    constexpr size_t short_cluster = 6;
    if (cluster.size() < short_cluster) {
      if (const auto match = charsmap_.shortest(cluster)) {
        out += match->replacement;
        return;
      }
    }
    for (size_t at = 0; at < cluster.size();) {
      const std::string_view character = cluster.substr(at, decode_utf8(cluster.data() + at).length);
      const auto match = charsmap_.shortest(character);
      out += match ? match->replacement : character;
      at += character.size();
    }
  }

  Charsmap charsmap_;
  std::array<bool, 128> plain_{};
};

}  // namespace

Result<Charsmap> Charsmap::make(std::string_view bytes) {
  uint32_t size = 0;
  if (bytes.size() < sizeof size) return Error{"the tokenizer's charsmap is shorter than its header"};
  if (bytes.size() > max_charsmap_bytes) return Error{"the tokenizer's charsmap is larger than 64 MiB"};
  std::memcpy(&size, bytes.data(), sizeof size);
  bytes.remove_prefix(sizeof size);
  if (size > bytes.size() || size % sizeof(uint32_t) != 0) {
    return Error{"the tokenizer's charsmap is shorter than its header says"};
  }
  Charsmap made;
  made.units_.resize(size / sizeof(uint32_t));
  if (size > 0) std::memcpy(made.units_.data(), bytes.data(), size);
  made.strings_ = bytes.substr(size);
  if (!is_utf8(made.strings_)) return Error{"the tokenizer's charsmap has replacements that are no UTF-8"};
  return made;
}

/// Every index comes from the file: what leads out of the tables matches nothing.
std::optional<Charsmap::Match> Charsmap::find(std::string_view text, bool longest) const {
  std::optional<Match> found;
  if (units_.empty()) return found;
  uint32_t node = offset_of(units_[0]);
  for (size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || label_of(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_value(unit)) continue;
    if (node >= units_.size()) break;
    const uint32_t begin = value_of(units_[node]);
    const bool inside_character =
        begin < strings_.size() && (static_cast<unsigned char>(strings_[begin]) & 0xC0) == 0x80;
    if (begin > strings_.size() || inside_character) break;
    const std::string_view rest = std::string_view(strings_).substr(begin);
    found = Match{at + 1, rest.substr(0, rest.find('\0'))};
    if (!longest) break;
  }
  return found;
}

bool Charsmap::leads_on(std::string_view text) const {
  if (units_.empty()) return false;
  uint32_t node = offset_of(units_[0]);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || label_of(units_[node]) != byte) return false;
    node ^= offset_of(units_[node]);
  }
  return true;
}

std::unique_ptr<const Normalization> precompiled_normalization(Charsmap charsmap) {
  return std::make_unique<Precompiled>(std::move(charsmap));
}

Result<std::string> decode_base64(std::string_view text) {
  static constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 3);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const size_t digit = digits.find(c);
    if (digit == std::string_view::npos) return Error{"tokenizer.json: a charsmap is no base64"};
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xFF);
  }
  return bytes;
}

}  // namespace quern
