#include "text/tokenizer/sentence_piece_normalize.h"

#include <array>

#include "text/pattern/unicode.h"
#include "text/subword/trie.h"

namespace quern {
namespace {

class SentencePieceNormalization final : public Normalization {
 public:
  SentencePieceNormalization(SentencePieceRules rules, Trie kept)
      : rules_(std::move(rules)), kept_(std::move(kept)), space_(rules_.escape_spaces ? "\u2581" : " ") {
    for (size_t c = 0; c < plain_.size(); ++c) {
      const auto character = static_cast<char>(c);
      plain_[c] = character != ' ' && kept_.step(Trie::root, character) < 0 &&
                  !(rules_.charsmap && changes(*rules_.charsmap, character));
    }
  }

  Status apply(std::string& text) const override {
    std::string out;
    out.reserve(text.size() + text.size() / 2 + 8);
    const bool merge = rules_.remove_extra_spaces;
    const bool add_before = rules_.add_prefix && !rules_.spaces_follow_words;
    bool started = !merge;
    bool after_space = merge;
    bool has_content = !merge && !text.empty();  // though it may come to nothing
    if (started && !text.empty() && add_before) out += space_;
    for (size_t at = 0; at < text.size();) {
      const Part part = next(text, at);
      at += part.length;
      has_content = has_content || part.text != " ";
      std::string_view added = part.text;
      while (after_space && added.starts_with(' ')) added.remove_prefix(1);
      if (added.empty()) continue;
      if (!started && add_before) out += space_;
      started = true;
      for (const char c : added) c == ' ' ? out += space_ : out += c;
      after_space = merge && added.ends_with(' ');
    }
    while (merge && out.ends_with(space_)) out.resize(out.size() - space_.size());
    if (rules_.add_prefix && rules_.spaces_follow_words && has_content) out += space_;
    text = std::move(out);
    return {};
  }

 private:
  /// Whether the charsmap replaces this ASCII character, alone or before another one.
  static bool changes(const Charsmap& charsmap, char first) {
    bool changed = charsmap.longest({&first, 1}).has_value();
    for (int second = 1; second < 128; ++second) {
      const char pair[] = {first, static_cast<char>(second)};
      changed = changed || charsmap.leads_on({pair, 2});
    }
    return changed;
  }

  struct Part {
    size_t length;  // taken from the text
    std::string_view text;
  };

  Part next(std::string_view text, size_t at) const {
    const auto first = static_cast<unsigned char>(text[at]);
    const bool plain_next = at + 1 == text.size() || static_cast<unsigned char>(text[at + 1]) < 128;
    if (first < 128 && plain_[first] && plain_next) return {1, text.substr(at, 1)};
    if (const size_t length = kept_length(text, at)) return {length, text.substr(at, length)};
    if (rules_.charsmap) {
      if (const auto match = rules_.charsmap->longest(text.substr(at))) return {match->length, match->replacement};
    }
    const size_t length = decode_utf8(text.data() + at).length;
    return {length, text.substr(at, length)};
  }

  size_t kept_length(std::string_view text, size_t at) const {
    size_t found = 0;
    int32_t node = Trie::root;
    for (size_t end = at; end < text.size();) {
      node = kept_.step(node, text[end++]);
      if (node < 0) break;
      if (kept_.value(node) >= 0) found = end - at;
    }
    return found;
  }

  SentencePieceRules rules_;
  Trie kept_;
  std::string space_;
  std::array<bool, 128> plain_{};  // characters that stay what they are before another one
};

}  // namespace

Result<std::unique_ptr<const Normalization>> sentence_piece_normalization(SentencePieceRules rules) {
  std::vector<Trie::Key> keys;
  for (const std::string& text : rules.kept) keys.push_back({text, 0});
  ASSIGN_OR_RETURN(Trie kept, Trie::make(std::move(keys)));
  using Made = std::unique_ptr<const Normalization>;
  return Made(std::make_unique<SentencePieceNormalization>(std::move(rules), std::move(kept)));
}

}  // namespace quern
