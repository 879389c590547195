#include "text/tokenizer/pretokenize.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <optional>

#include "text/pattern/pattern.h"
#include "text/pattern/scanners.h"
#include "text/pattern/unicode.h"
#include "text/pattern/unicode_scripts.h"
#include "text/subword/byte_alphabet.h"

namespace quern {
namespace {

enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// A part of a piece: a match or a gap between matches.
struct Part {
  Span span;
  bool match = false;
};

/// Cuts every piece at the matches of a pattern.
class Split final : public Cut {
 public:
  Split(std::unique_ptr<const Pattern> pattern, Behavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  bool is_linear() const override { return pattern_->is_linear(); }
  Status apply(Pieces& pieces) const override {
    std::vector<Span> cut;
    cut.reserve(pieces.text.size() / 4 + 1);
    std::vector<Span> matches;
    std::vector<Part> parts;
    for (const Span piece : pieces.spans) {
      matches.clear();
      TRY(pattern_->find_all(part(pieces.text, piece), matches));
      if (behavior_ == Behavior::isolated) {
        isolate(piece, matches, cut);
      } else {
        lay_out(piece, matches, parts);
        arrange(parts, cut);
      }
    }
    pieces.spans = std::move(cut);
    return {};
  }

 private:
  static void push(std::vector<Span>& cut, uint32_t begin, uint32_t end) {
    if (begin < end) cut.push_back({begin, end});
  }

  static void isolate(Span piece, const std::vector<Span>& matches, std::vector<Span>& cut) {
    uint32_t at = piece.begin;
    for (const Span match : matches) {
      push(cut, at, piece.begin + match.begin);
      push(cut, piece.begin + match.begin, piece.begin + match.end);
      at = piece.begin + match.end;
    }
    push(cut, at, piece.end);
  }

  void lay_out(Span piece, const std::vector<Span>& matches, std::vector<Part>& parts) const {
    parts.clear();
    uint32_t at = piece.begin;
    for (const Span match : matches) {
      const Span span{piece.begin + match.begin, piece.begin + match.end};
      if (at < span.begin) parts.push_back({{at, span.begin}, invert_});
      parts.push_back({span, !invert_});
      at = span.end;
    }
    if (at < piece.end) parts.push_back({{at, piece.end}, invert_});
  }

  void arrange(const std::vector<Part>& parts, std::vector<Span>& cut) const {
    for (size_t i = 0; i < parts.size(); ++i) {
      if (behavior_ == Behavior::removed && parts[i].match) continue;
      Span span = parts[i].span;
      while (i + 1 < parts.size() && joins_next(parts, i)) span.end = parts[++i].span.end;
      push(cut, span.begin, span.end);
    }
  }

  /// Whether part `i` and the next one stay together.
  bool joins_next(const std::vector<Part>& parts, size_t i) const {
    const bool match = parts[i].match;
    const bool next = parts[i + 1].match;
    switch (behavior_) {
      case Behavior::merged_with_previous: return next && !match;
      case Behavior::merged_with_next: return match && !next;
      case Behavior::contiguous: return match == next;
      case Behavior::removed:
      case Behavior::isolated: return false;
    }
    return false;
  }

  std::unique_ptr<const Pattern> pattern_;
  Behavior behavior_;
  bool invert_;
};

/// Lets a function rewrite every piece into a new text.
template <typename Rewrite>
void rewrite_pieces(Pieces& pieces, Rewrite rewrite) {
  std::string changed;
  changed.reserve(pieces.text.size() + pieces.text.size() / 4 + 16);
  for (Span& span : pieces.spans) {
    const std::string_view piece = part(pieces.text, span);
    const auto begin = static_cast<uint32_t>(changed.size());
    rewrite(changed, piece, span.begin == 0);
    span = {begin, static_cast<uint32_t>(changed.size())};
  }
  pieces.own(std::move(changed));
}

class PrefixSpace final : public Cut {
 public:
  Status apply(Pieces& pieces) const override {
    rewrite_pieces(pieces, [](std::string& out, std::string_view piece, bool) {
      if (!piece.starts_with(' ')) out += ' ';
      out += piece;
    });
    return {};
  }
};

class MapBytes final : public Cut {
 public:
  Status apply(Pieces& pieces) const override {
    rewrite_pieces(pieces, [](std::string& out, std::string_view piece, bool) { append_as_characters(out, piece); });
    pieces.bytes_mapped = true;
    return {};
  }
};

class Metaspace final : public Cut {
 public:
  enum class Prepend { always, first, never };
  Metaspace(std::string replacement, Prepend prepend) : replacement_(std::move(replacement)), prepend_(prepend) {}

  Status apply(Pieces& pieces) const override {
    const bool at_start = pieces.at_start;
    rewrite_pieces(pieces, [&](std::string& out, std::string_view piece, bool first) {
      const bool wanted = prepend_ == Prepend::always || (prepend_ == Prepend::first && first && at_start);
      if (wanted && !piece.starts_with(' ') && !piece.starts_with(replacement_)) out += replacement_;
      for (const char c : piece) c == ' ' ? out += replacement_ : out += c;
    });
    return {};
  }

 private:
  std::string replacement_;
  Prepend prepend_;
};

/// Pieces of a number of characters.
class FixedLength final : public Cut {
 public:
  explicit FixedLength(int64_t length) : length_(length) {}

  Status apply(Pieces& pieces) const override {
    std::vector<Span> cut;
    for (const Span piece : pieces.spans) {
      uint32_t begin = piece.begin;
      int64_t count = 0;
      for (uint32_t at = piece.begin; at < piece.end;) {
        at += decode_utf8(pieces.text.data() + at).length;
        if (++count % length_ != 0 && at != piece.end) continue;
        cut.push_back({begin, at});
        begin = at;
      }
    }
    pieces.spans = std::move(cut);
    return {};
  }

 private:
  int64_t length_;
};

Result<Behavior> behavior_of(const Json& json, std::string_view fallback) {
  const std::string name = json.string("behavior").value_or(std::string(fallback));
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  return Error{fmt::format("tokenizer.json: split behavior \"{}\" is unknown", name)};
}

using CutList = std::vector<std::unique_ptr<const Cut>>;

void add_split(CutList& cuts, std::unique_ptr<const Pattern> pattern, Behavior behavior, bool invert = false) {
  // A scanner's matches cover the text, so inverting an isolated split changes nothing.
  cuts.push_back(std::make_unique<Split>(std::move(pattern), behavior, invert));
}

Status add_metaspace(CutList& cuts, const Json& json) {
  const std::string replacement = json.string("replacement").value_or("\u2581");
  if (replacement.empty()) return Error{"tokenizer.json: Metaspace has an empty \"replacement\""};
  const bool legacy_prefix = json.boolean("add_prefix_space").value_or(true);
  const std::string scheme = json.string("prepend_scheme").value_or(legacy_prefix ? "always" : "never");
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return Error{fmt::format("tokenizer.json: Metaspace prepend_scheme \"{}\" is unknown", scheme)};
  }
  cuts.push_back(std::make_unique<Metaspace>(replacement, scheme == "always"  ? Metaspace::Prepend::always
                                                          : scheme == "first" ? Metaspace::Prepend::first
                                                                              : Metaspace::Prepend::never));
  if (json.boolean("split").value_or(true)) add_split(cuts, Pattern::literal(replacement), Behavior::merged_with_next);
  return {};
}

/// \w+|[^\w\s]+ with the \w of Unicode's recommendation, which is not Oniguruma's.
std::string words_pattern() {
  const std::string_view word = R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149})"
                                R"(\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";
  return fmt::format("[{0}]+|[^{0}\\s]+", word);
}

/// The cuts that need no more than a pattern. False when `type` is none of them.
Result<bool> add_simple(CutList& cuts, const std::string& type, const Json& json) {
  if (type == "Split") {
    ASSIGN_OR_RETURN(auto pattern, Pattern::from_json(json.find("pattern")));
    ASSIGN_OR_RETURN(const Behavior behavior, behavior_of(json, "Isolated"));
    add_split(cuts, std::move(pattern), behavior, json.boolean("invert").value_or(false));
  } else if (type == "Digits") {
    const bool individual = json.boolean("individual_digits").value_or(false);
    add_split(cuts, Pattern::characters(is_number), individual ? Behavior::isolated : Behavior::contiguous);
  } else if (type == "Punctuation") {
    ASSIGN_OR_RETURN(const Behavior behavior, behavior_of(json, "Isolated"));
    add_split(cuts, Pattern::characters(is_punctuation), behavior);
  } else if (type == "Whitespace") {
    ASSIGN_OR_RETURN(auto pattern, Pattern::regex(words_pattern()));
    add_split(cuts, std::move(pattern), Behavior::removed, true);
  } else if (type == "WhitespaceSplit") {
    add_split(cuts, Pattern::characters(is_space), Behavior::removed);
  } else if (type == "BertPreTokenizer") {
    add_split(cuts, Pattern::characters(is_space), Behavior::removed);
    add_split(cuts, Pattern::characters(is_punctuation), Behavior::isolated);
  } else if (type == "UnicodeScripts") {
    ASSIGN_OR_RETURN(auto pattern, Pattern::regex(scripts_pattern()));
    add_split(cuts, std::move(pattern), Behavior::removed, true);
  } else if (type == "CharDelimiterSplit") {
    add_split(cuts, Pattern::literal(json.string("delimiter").value_or(" ")), Behavior::removed);
  } else {
    return false;
  }
  return true;
}

void unmap_bytes(Pieces& pieces) {
  rewrite_pieces(pieces, [](std::string& out, std::string_view piece, bool) {
    if (!append_as_bytes(out, piece)) out += piece;
  });
  pieces.bytes_mapped = false;
}

}  // namespace

Result<PreTokenizer> PreTokenizer::from_json(const Json* json) {
  PreTokenizer made;
  if (json != nullptr && !json->is_null()) TRY(made.add(*json, true));
  if (made.description_.empty()) made.description_ = "none";
  return made;
}

Status PreTokenizer::add(const Json& json, bool last) {
  const std::string type = json.string("type").value_or("");
  if (type == "Sequence") {
    const Json* list = json.find("pretokenizers");
    if (list == nullptr || !list->is_array()) return Error{"tokenizer.json: Sequence lacks \"pretokenizers\""};
    for (const Json& item : list->items()) TRY(add(item, last && &item == &list->items().back()));
    return {};
  }
  description_ += (description_.empty() ? "" : "+") + type;
  if (type == "ByteLevel") return add_byte_level(json, last);
  if (type == "Metaspace") return add_metaspace(cuts_, json);
  if (type == "FixedLength") {
    const int64_t length = json.integer("length").value_or(5);
    if (length < 1) return Error{"tokenizer.json: FixedLength needs a length of at least 1"};
    cuts_.push_back(std::make_unique<FixedLength>(length));
    return {};
  }
  ASSIGN_OR_RETURN(const bool known, add_simple(cuts_, type, json));
  if (!known) return Error{fmt::format("tokenizer.json: pre-tokenizer \"{}\" is not supported", type)};
  return {};
}

Status PreTokenizer::add_byte_level(const Json& json, bool last) {
  byte_level_ = true;
  if (json.boolean("add_prefix_space").value_or(true)) cuts_.push_back(std::make_unique<PrefixSpace>());
  if (json.boolean("use_regex").value_or(true)) {
    ASSIGN_OR_RETURN(auto pattern, Pattern::regex(gpt2_pattern));
    add_split(cuts_, std::move(pattern), Behavior::isolated);
  }
  // The model takes bytes, so the alphabet matters only to cuts that come after this one.
  if (!last) cuts_.push_back(std::make_unique<MapBytes>());
  return {};
}

bool PreTokenizer::is_linear() const {
  return std::ranges::all_of(cuts_, [](const auto& cut) { return cut->is_linear(); });
}

Status PreTokenizer::apply(Pieces& pieces) const {
  for (const auto& cut : cuts_) TRY(cut->apply(pieces));
  if (pieces.bytes_mapped) unmap_bytes(pieces);
  return {};
}

}  // namespace quern
