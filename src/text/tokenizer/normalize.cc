#include "text/tokenizer/normalize.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <optional>
#include <span>
#include <utf8proc.h>

#include "text/pattern/pattern.h"
#include "text/pattern/unicode.h"
#include "text/subword/byte_alphabet.h"
#include "text/tokenizer/charsmap.h"

namespace quern {
namespace {

constexpr size_t max_text_bytes = size_t{1} << 30;

/// NFC, NFD, NFKC, NFKD. The ordering of marks is done here: utf8proc's own takes quadratic time on long runs of them.
class UnicodeForm final : public Normalization {
 public:
  UnicodeForm(bool compose, bool compatible)
      : compose_(compose),
        options_(static_cast<utf8proc_option_t>(UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                                (compatible ? UTF8PROC_COMPAT : 0))),
        compatible_(compatible) {}

  Status apply(std::string& text) const override {
    if (is_stable(text)) return {};
    std::string out;
    out.reserve(text.size() + text.size() / 4);
    const auto ascii = [&text](size_t at) { return static_cast<unsigned char>(text[at]) < 0x80; };
    for (size_t at = 0; at < text.size();) {
      size_t begin = at;
      while (begin < text.size() && ascii(begin)) ++begin;
      size_t end = begin;
      while (end < text.size() && !ascii(end)) ++end;
      if (begin > at && end > begin) --begin;  // a mark may join the character before it
      out.append(text, at, begin - at);
      if (end > begin) TRY(append_changed(out, std::string_view(text).substr(begin, end - begin)));
      at = end;
    }
    text = std::move(out);
    return {};
  }

 private:
  /// True for texts that no form (or, beyond ASCII, not NFC) changes; false says nothing.
  bool is_stable(std::string_view text) const {
    const bool nfc = compose_ && !compatible_;
    for (size_t at = 0; at < text.size();) {
      const Character character = decode_utf8(text.data() + at);
      const char32_t c = character.code;
      const bool stable = c < 0x300 || (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0xAC00 && c <= 0xD7A3) ||
                          (c >= 0x2010 && c <= 0x2027) || (c >= 0x3041 && c <= 0x3096) ||
                          (c >= 0x30A1 && c <= 0x30FA) || (c >= 0xFF01 && c <= 0xFF5E) || (c >= 0x410 && c <= 0x44F);
      if (c >= 0x80 && !(nfc && stable)) return false;
      at += character.length;
    }
    return true;
  }

  Status append_changed(std::string& out, std::string_view text) const {
    std::vector<utf8proc_int32_t> codes = decompose(text);
    order_marks(codes);
    if (compose_) {
      const auto count = utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()), options_);
      if (count < 0) return Error{utf8proc_errmsg(count)};
      codes.resize(static_cast<size_t>(count));
    }
    for (const utf8proc_int32_t code : codes) append_utf8(out, static_cast<char32_t>(code));
    return {};
  }

  std::vector<utf8proc_int32_t> decompose(std::string_view text) const {
    constexpr size_t longest = 32;  // U+FDFA becomes 18 characters
    std::vector<utf8proc_int32_t> codes(text.size() + longest);
    size_t count = 0;
    int boundary = 0;
    for (size_t at = 0; at < text.size();) {
      const Character character = decode_utf8(text.data() + at);
      if (codes.size() - count < longest) codes.resize(codes.size() * 2);
      const auto code = static_cast<utf8proc_int32_t>(character.code);
      const auto made = utf8proc_decompose_char(code, codes.data() + count, longest, options_, &boundary);
      if (made > 0 && made <= static_cast<utf8proc_ssize_t>(longest)) count += static_cast<size_t>(made);
      at += character.length;
    }
    codes.resize(count);
    return codes;
  }

  /// Sorts by order and, within one, by place.
  template <typename Order>
  static void sort_marks(std::span<utf8proc_int32_t> marks, Order order) {
    std::vector<uint64_t> keys(marks.size());
    for (size_t i = 0; i < marks.size(); ++i) {
      keys[i] = uint64_t{order(marks[i])} << 56 | uint64_t{i} << 21 | static_cast<uint64_t>(marks[i]);
    }
    std::ranges::sort(keys);
    std::ranges::transform(keys, marks.begin(), [](uint64_t key) { return static_cast<int32_t>(key & 0x1FFFFF); });
  }

  static void order_marks(std::vector<utf8proc_int32_t>& codes) {
    const auto order = [](utf8proc_int32_t code) {
      return static_cast<uint8_t>(utf8proc_get_property(code)->combining_class);
    };
    for (auto from = codes.begin(); from != codes.end();) {
      if (order(*from) == 0) {
        ++from;
        continue;
      }
      const auto to = std::find_if(from, codes.end(), [&](auto code) { return order(code) == 0; });
      sort_marks({from, to}, order);
      from = to;
    }
  }

  bool compose_;
  utf8proc_option_t options_;
  bool compatible_;
};

/// Each character by itself becomes something else; one of ASCII at most one of ASCII.
class PerCharacter final : public Normalization {
 public:
  using Change = void (*)(std::string& out, char32_t code);
  explicit PerCharacter(Change change) : change_(change) {
    for (size_t c = 0; c < ascii_.size(); ++c) {
      std::string changed;
      change(changed, static_cast<char32_t>(c));
      ascii_[c] = changed.empty() ? dropped : changed[0];
    }
  }

  Status apply(std::string& text) const override {
    std::string out;
    out.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      if (const auto byte = static_cast<unsigned char>(text[at]); byte < ascii_.size()) {
        if (ascii_[byte] != dropped) out += ascii_[byte];
        ++at;
        continue;
      }
      const Character character = decode_utf8(text.data() + at);
      change_(out, character.code);
      at += character.length;
    }
    text = std::move(out);
    return {};
  }

 private:
  static constexpr char dropped = '\xFF';
  Change change_;
  std::array<char, 128> ascii_{};  // what becomes of them
};

void append_lowercase(std::string& out, char32_t code) {
  if (code == 0x130) {
    out += "i\u0307";  // the only lowercase that is two characters
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
  }
}

void append_unless_nonspacing_mark(std::string& out, char32_t code) {
  if (!is_nonspacing_mark(code)) append_utf8(out, code);
}

/// The cleaning of BERT: controls go, whitespace becomes a space.
void append_clean(std::string& out, char32_t code) {
  const bool line = code == '\t' || code == '\n' || code == '\r';
  if (!line && (code == 0xFFFD || is_control(code))) return;
  append_utf8(out, is_space(code) ? U' ' : code);
}

/// Han characters get spaces around them.
void append_apart(std::string& out, char32_t code) {
  const bool han = (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
                   (code >= 0x20000 && code <= 0x2A6DF) || (code >= 0x2A700 && code <= 0x2B81F) ||
                   (code >= 0x2B920 && code <= 0x2CEAF) || (code >= 0xF900 && code <= 0xFAFF) ||
                   (code >= 0x2F800 && code <= 0x2FA1F);
  if (han) out += ' ';
  append_utf8(out, code);
  if (han) out += ' ';
}

/// The cleaning that SentencePiece does for machine translation.
void append_nmt(std::string& out, char32_t code) {
  const bool control = (code >= 1 && code <= 8) || code == 0xB || (code >= 0xE && code <= 0x1F) || code == 0x7F ||
                       code == 0x8F || code == 0x9F;
  if (control) return;
  const bool space = (code >= 9 && code <= 0xD) || code == 0x1680 || (code >= 0x200B && code <= 0x200F) ||
                     code == 0x2028 || code == 0x2029 || code == 0x2581 || code == 0xFEFF || code == 0xFFFD;
  append_utf8(out, space ? U' ' : code);
}

void append_unless_mark(std::string& out, char32_t code) {
  if (!is_mark(code)) append_utf8(out, code);
}

class Strip final : public Normalization {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}

  Status apply(std::string& text) const override {
    size_t begin = 0;
    size_t end = text.size();
    while (left_ && begin < end) {
      const Character first = decode_utf8(text.data() + begin);
      if (!is_space(first.code)) break;
      begin += first.length;
    }
    while (right_ && begin < end) {
      const size_t last = previous_character(text, end);
      if (!is_space(decode_utf8(text.data() + last).code)) break;
      end = last;
    }
    text = text.substr(begin, end - begin);
    return {};
  }

 private:
  bool left_;
  bool right_;
};

class Prepend final : public Normalization {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  Status apply(std::string& text) const override {
    if (!text.empty()) text.insert(0, prefix_);
    return {};
  }

 private:
  std::string prefix_;
};

class Replace final : public Normalization {
 public:
  Replace(std::unique_ptr<const Pattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  bool is_linear() const override { return pattern_->is_linear() && content_.size() <= 16; }
  Status apply(std::string& text) const override {
    std::vector<Span> matches;
    TRY(pattern_->find_all(text, matches));
    if (matches.empty()) return {};
    if (content_.size() > (max_text_bytes - text.size()) / matches.size())
      return Error{"the normalized text is too long"};
    std::string out;
    out.reserve(text.size() + matches.size() * content_.size());
    uint32_t at = 0;
    for (const Span match : matches) {
      out.append(text, at, match.begin - at).append(content_);
      at = match.end;
    }
    text = out.append(text, at);
    return {};
  }

 private:
  std::unique_ptr<const Pattern> pattern_;
  std::string content_;
};

class MapBytes final : public Normalization {
 public:
  Status apply(std::string& text) const override {
    std::string out;
    append_as_characters(out, text);
    text = std::move(out);
    return {};
  }
};

Result<std::unique_ptr<const Normalization>> make_step(const std::string& type, const Json& json) {
  using Step = std::unique_ptr<const Normalization>;
  if (type == "NFC" || type == "NFKC") return Step(std::make_unique<UnicodeForm>(true, type == "NFKC"));
  if (type == "NFD" || type == "NFKD") return Step(std::make_unique<UnicodeForm>(false, type == "NFKD"));
  if (type == "Lowercase") return Step(std::make_unique<PerCharacter>(append_lowercase));
  if (type == "StripAccents") return Step(std::make_unique<PerCharacter>(append_unless_mark));
  if (type == "Strip") {
    const bool left = json.boolean("strip_left").value_or(true);
    return Step(std::make_unique<Strip>(left, json.boolean("strip_right").value_or(true)));
  }
  if (type == "Prepend") {
    const std::optional<std::string> prefix = json.string("prepend");
    if (!prefix) return Error{"tokenizer.json: normalizer Prepend lacks \"prepend\""};
    return Step(std::make_unique<Prepend>(*prefix));
  }
  if (type == "Replace") {
    ASSIGN_OR_RETURN(auto pattern, Pattern::from_json(json.find("pattern")));
    return Step(std::make_unique<Replace>(std::move(pattern), json.string("content").value_or("")));
  }
  if (type == "ByteLevel") return Step(std::make_unique<MapBytes>());
  if (type == "Nmt") return Step(std::make_unique<PerCharacter>(append_nmt));
  if (type == "Precompiled") {
    const std::optional<std::string> encoded = json.string("precompiled_charsmap");
    if (!encoded) return Error{"tokenizer.json: normalizer Precompiled lacks \"precompiled_charsmap\""};
    ASSIGN_OR_RETURN(const std::string bytes, decode_base64(*encoded));
    ASSIGN_OR_RETURN(Charsmap charsmap, Charsmap::make(bytes));
    return precompiled_normalization(std::move(charsmap));
  }
  return Error{fmt::format("tokenizer.json: normalizer \"{}\" is not supported", type)};
}

}  // namespace

Result<Normalizer> Normalizer::from_json(const Json* json) {
  Normalizer normalizer;
  if (json != nullptr && !json->is_null()) TRY(normalizer.add(*json));
  return normalizer;
}

Status Normalizer::add(const Json& json) {
  const std::string type = json.string("type").value_or("");
  if (type == "BertNormalizer") {
    add_bert(json);
    return {};
  }
  if (type == "Sequence") {
    const Json* list = json.find("normalizers");
    if (list == nullptr || !list->is_array()) return Error{"tokenizer.json: normalizer Sequence lacks \"normalizers\""};
    for (const Json& item : list->items()) TRY(add(item));
    return {};
  }
  ASSIGN_OR_RETURN(auto step, make_step(type, json));
  steps_.push_back(std::move(step));
  maps_bytes_ = maps_bytes_ || type == "ByteLevel";
  return {};
}

void Normalizer::add_bert(const Json& json) {
  const auto add = [this](auto step) { steps_.push_back(std::make_unique<decltype(step)>(std::move(step))); };
  const bool lowercase = json.boolean("lowercase").value_or(true);
  if (json.boolean("clean_text").value_or(true)) add(PerCharacter(append_clean));
  if (json.boolean("handle_chinese_chars").value_or(true)) add(PerCharacter(append_apart));
  if (json.boolean("strip_accents").value_or(lowercase)) {
    add(UnicodeForm(false, false));
    add(PerCharacter(append_unless_nonspacing_mark));
  }
  if (lowercase) add(PerCharacter(append_lowercase));
}

void Normalizer::add(std::unique_ptr<const Normalization> step) { steps_.push_back(std::move(step)); }

bool Normalizer::is_linear() const {
  return std::ranges::all_of(steps_, [](const auto& step) { return step->is_linear(); });
}

Status Normalizer::apply(std::string& text, bool* at_start) const {
  std::string first;
  for (const auto& step : steps_) {
    if (at_start != nullptr && *at_start && !text.empty()) {
      first.assign(text, 0, decode_utf8(text.data()).length);
      TRY(step->apply(first));
      *at_start = !first.empty();
    }
    TRY(step->apply(text));
    if (text.size() > max_text_bytes) return Error{"the normalized text is too long"};
  }
  return {};
}

}  // namespace quern
