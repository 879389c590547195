#include "text/tokenizer/added_tokens.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "text/pattern/unicode.h"

namespace quern {
namespace {

bool inside_word(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && is_word(decode_utf8(text.data() + previous_character(text, begin)).code)) return true;
  return end < text.size() && is_word(decode_utf8(text.data() + end).code);
}

size_t spaces_left(std::string_view text, size_t begin, size_t limit) {
  while (begin > limit) {
    const size_t previous = previous_character(text, begin);
    if (!is_space(decode_utf8(text.data() + previous).code)) break;
    begin = previous;
  }
  return begin;
}

size_t spaces_right(std::string_view text, size_t end) {
  while (end < text.size()) {
    const Character next = decode_utf8(text.data() + end);
    if (!is_space(next.code)) break;
    end += next.length;
  }
  return end;
}

}  // namespace

bool Trust::covers(size_t begin, size_t end) const {
  if (all_ || parts_.empty()) return all_;
  const auto after = std::ranges::upper_bound(parts_, begin, {}, &Span::begin);
  return after != parts_.begin() && std::prev(after)->end >= end;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::ranges::sort(tokens_, {}, [](const AddedToken& token) { return std::tie(token.content, token.id); });
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    CHECK(!tokens_[i].content.empty() && tokens_[i].content.size() <= max_added_token_bytes);
    Range& range = by_first_byte_[static_cast<unsigned char>(tokens_[i].content[0])];
    if (range.last == 0) range.first = i;
    range.last = i + 1;
  }
}

std::vector<Fragment> AddedTokens::find(std::string_view text, const Trust& trust) const {
  std::vector<Fragment> fragments;
  const auto push = [&](size_t begin, size_t end, int32_t token) {
    if (begin < end) fragments.push_back({{static_cast<uint32_t>(begin), static_cast<uint32_t>(end)}, token});
  };
  size_t text_begin = 0;
  for (size_t at = 0; at < text.size();) {
    const bool possible = by_first_byte_[static_cast<unsigned char>(text[at])].last != 0;
    const AddedToken* token = possible ? longest(text, at, trust) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + token->content.size();
    at = end;
    if (token->single_word && inside_word(text, begin, end)) continue;
    if (token->lstrip) begin = spaces_left(text, begin, text_begin);
    if (token->rstrip) end = spaces_right(text, end);
    push(text_begin, begin, -1);
    push(begin, end, token->id);
    at = text_begin = end;
  }
  push(text_begin, text.size(), -1);
  return fragments;
}

/// Narrows the sorted tokens byte by byte to those that `text` continues with; a token that ends at a byte is the first
/// of its range.
const AddedToken* AddedTokens::longest(std::string_view text, size_t at, const Trust& trust) const {
  const Range range = by_first_byte_[static_cast<unsigned char>(text[at])];
  auto first = tokens_.begin() + range.first;
  auto last = tokens_.begin() + range.last;
  const AddedToken* found = nullptr;
  for (size_t length = 1;; ++length) {
    if (first->content.size() == length && (!first->special || trust.covers(at, at + length))) found = &*first;
    if (at + length == text.size()) return found;
    const auto byte = [length](const AddedToken& token) {  // -1 sorts the token that ends here before all others
      return token.content.size() > length ? static_cast<int>(static_cast<unsigned char>(token.content[length])) : -1;
    };
    const auto next = std::ranges::equal_range(first, last, static_cast<unsigned char>(text[at + length]), {}, byte);
    if (next.empty()) return found;
    first = next.begin();
    last = next.end();
  }
}

}  // namespace quern
