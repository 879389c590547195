#include "text/subword/bpe.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <queue>

#include "base/check.h"
#include "text/pattern/unicode.h"
#include "text/subword/byte_alphabet.h"
#include "text/subword/hash.h"
#include "text/subword/piece_cache.h"
#include "text/tokenizer/decode.h"

namespace quern {

/// A stretch of the piece that is one token, or none yet.
struct Bpe::Symbol {
  uint32_t begin = 0;
  uint32_t length = 0;
  int32_t id = -1;
  int32_t previous = -1;  // links of merge_long; a dead symbol has length 0
  int32_t next = -1;
  bool whole = false;  // never merged
};

struct Bpe::Merge {
  uint32_t rank = UINT32_MAX;  // none
  int32_t merged = -1;
};

/// A possible merge of the symbol at `place` with the one after it; stale when their lengths have changed.
struct Bpe::Queued {
  uint64_t rank_and_place = 0;
  uint32_t left_length = 0;
  uint32_t right_length = 0;
  int32_t merged = -1;
  bool operator>(const Queued& other) const { return rank_and_place > other.rank_and_place; }
};

namespace {

constexpr size_t neighbour_bits = size_t{1} << 21;
constexpr size_t short_piece = 48;  // symbols up to which looking through all pairs beats a queue

uint64_t pair_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

/// Ascending for falling scores; NaN comes last.
uint32_t order_of(float score) {
  if (!(score == score)) return UINT32_MAX - 1;
  const auto bits = std::bit_cast<uint32_t>(score == 0 ? 0.0F : score);
  const uint32_t ascending = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return std::min(~ascending, UINT32_MAX - 1);
}

size_t neighbour_bit(char32_t left, char32_t right) {
  return ((uint64_t{left} << 21 | right) * 0x9E3779B97F4A7C15U) >> (64 - std::countr_zero(neighbour_bits));
}

}  // namespace

Bpe::Bpe(const Vocabulary& vocabulary, const BpeOptions& options, size_t merges)
    : vocabulary_(vocabulary), options_(options), owner_(next_piece_owner()), pairs_(std::bit_ceil(merges * 2 + 2)) {
  byte_tokens_ = vocabulary.byte_tokens();
  all_bytes_ = std::ranges::all_of(byte_tokens_, [](int32_t id) { return id >= 0; });
  if (!vocabulary.byte_level()) learn_neighbours();
}

Bpe::Bpe(const Vocabulary& vocabulary, const BpeOptions& options, const std::vector<float>& scores)
    : Bpe(vocabulary, options, 0) {
  pairs_.clear();
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    longest_token_ = std::max(longest_token_, vocabulary.key(id).size());
  }
  order_.reserve(scores.size());
  std::ranges::transform(scores, std::back_inserter(order_), order_of);
  CHECK(order_.size() == static_cast<size_t>(vocabulary.size()));
}

Status Bpe::add_merge(std::string_view left, std::string_view right) {
  std::string key;
  const auto append = [&](std::string_view text) {
    if (vocabulary_.byte_level()) return append_as_bytes(key, text);
    key += text;
    return true;
  };
  const auto refuse = [this](std::string_view text) {
    return Error{
        fmt::format("tokenizer: merge {} needs token \"{}\", which is not in the vocabulary", next_rank_, text)};
  };
  if (!append(left)) return refuse(left);
  const size_t middle = key.size();
  if (!append(right)) return refuse(right);
  const int32_t left_id = vocabulary_.find_key(std::string_view(key).substr(0, middle));
  const int32_t right_id = vocabulary_.find_key(std::string_view(key).substr(middle));
  if (left_id < 0 || middle == 0) return refuse(left);
  if (right_id < 0 || middle == key.size()) return refuse(right);
  if (key.compare(middle, options_.continuation.size(), options_.continuation) == 0) {
    key.erase(middle, options_.continuation.size());
  }
  const int32_t merged = vocabulary_.find_key(key);
  if (merged < 0) return refuse(fmt::format("{}{}", left, right));
  add_pair(left_id, right_id, merged);
  return {};
}

void Bpe::add_pair(int32_t left, int32_t right, int32_t merged) {
  const uint64_t pair = pair_of(left, right);
  const size_t mask = pairs_.size() - 1;
  CHECK(next_rank_ < pairs_.size() / 2);
  size_t at = hash_number(pair) & mask;
  while (pairs_[at].pair != UINT64_MAX && pairs_[at].pair != pair) at = (at + 1) & mask;
  pairs_[at] = {pair, next_rank_++, merged};
  // A merge of these joins characters that do not stand side by side in the spelling of the result.
  const auto stands_for_other = [this](int32_t id) {
    return id == options_.unknown || byte_of_token(vocabulary_.text(id)) >= 0;
  };
  if (!vocabulary_.byte_level() && (stands_for_other(left) || stands_for_other(right))) may_cut_ = false;
}

/// A text without splits, as SentencePiece has them, is cut where no token spans: between characters that are
/// neighbours in no token. The result is the same and the pieces are short enough to be remembered.
void Bpe::learn_neighbours() {
  neighbours_.resize(neighbour_bits / 64);
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    const std::string_view text = vocabulary_.text(id);
    char32_t left = 0;
    for (size_t at = 0; at < text.size();) {
      const Character right = decode_utf8(text.data() + at);
      if (at > 0) {
        const size_t bit = neighbour_bit(left, right.code);
        neighbours_[bit / 64] |= uint64_t{1} << bit % 64;
      }
      left = right.code;
      at += right.length;
    }
  }
  // A character that is dropped makes its neighbours neighbours of each other.
  may_cut_ = options_.unknown >= 0 || (options_.byte_fallback && all_bytes_);
  may_cut_ = may_cut_ && options_.continuation.empty() && options_.piece_end.empty();
}

bool Bpe::may_join(char32_t left, char32_t right) const {
  const size_t bit = neighbour_bit(left, right);
  return (neighbours_[bit / 64] >> bit % 64 & 1) != 0;
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  if (options_.ignore_merges) {
    const int32_t whole = vocabulary_.find_key(piece);
    if (whole >= 0 && !vocabulary_.special(whole)) {
      ids.push_back(whole);
      return;
    }
  }
  if (vocabulary_.byte_level() || !may_cut_) return encode_remembered(piece, ids);
  const size_t start = ids.size();
  size_t begin = 0;
  Character left = decode_utf8(piece.data());
  for (size_t at = left.length; begin < piece.size();) {
    const Character right = at < piece.size() ? decode_utf8(piece.data() + at) : Character{};
    if (at == piece.size() || !may_join(left.code, right.code)) {
      const size_t before = ids.size();
      encode_remembered(piece.substr(begin, at - begin), ids);
      const bool both_unknown = options_.fuse_unknown && before > start && ids.size() > before &&
                                ids[before - 1] == options_.unknown && ids[before] == options_.unknown;
      if (both_unknown) ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(before));
      begin = at;
    }
    left = right;
    at += right.length;
  }
}

void Bpe::encode_remembered(std::string_view piece, std::vector<int32_t>& ids) const {
  encode_cached(owner_, piece, ids,
                [this](std::string_view text, std::vector<int32_t>& out) { encode_new(text, out); });
}

void Bpe::encode_new(std::string_view piece, std::vector<int32_t>& ids) const {
  const size_t start = ids.size();
  std::vector<Symbol> symbols = split(piece);
  symbols.size() <= short_piece ? merge_short(piece, symbols) : merge_long(piece, symbols);
  for (const Symbol& symbol : symbols) {
    if (symbol.length == 0) continue;
    emit(piece, symbol, ids);
    const bool repeated = options_.fuse_unknown && symbol.id < 0 && ids.size() > start + 1 &&
                          ids.back() == options_.unknown && ids[ids.size() - 2] == options_.unknown;
    if (repeated) ids.pop_back();
  }
}

std::vector<Bpe::Symbol> Bpe::split(std::string_view piece) const {
  std::vector<Symbol> symbols;
  symbols.reserve(piece.size());
  for (uint32_t at = 0; at < piece.size();) {
    if (const Symbol whole = find_whole(piece, at); whole.id >= 0) {
      symbols.push_back(whole);
      at += whole.length;
      continue;
    }
    const uint32_t length = vocabulary_.byte_level() ? 1 : decode_utf8(piece.data() + at).length;
    split_character(piece, at, length, symbols);
    at += length;
  }
  return symbols;
}

/// The longest whole token at `begin`; without id where there is none.
Bpe::Symbol Bpe::find_whole(std::string_view piece, uint32_t begin) const {
  Symbol found{.begin = begin, .whole = true};
  int32_t node = options_.whole ? Trie::root : -1;
  for (uint32_t end = begin; node >= 0 && end < piece.size();) {
    node = options_.whole->step(node, piece[end++]);
    if (node < 0 || options_.whole->value(node) < 0) continue;
    found.length = end - begin;
    found.id = options_.whole->value(node);
  }
  return found;
}

int32_t Bpe::find_character(std::string_view piece, uint32_t begin, uint32_t length) const {
  const bool first = begin == 0;
  const bool last = begin + length == piece.size();
  const bool bare = (first || options_.continuation.empty()) && (!last || options_.piece_end.empty());
  const std::string_view character = piece.substr(begin, length);
  if (bare && vocabulary_.byte_level()) return byte_tokens_[static_cast<unsigned char>(character[0])];
  if (bare) return vocabulary_.find_key(character);
  std::string key = first ? "" : options_.continuation;
  key += character;
  if (last) key += options_.piece_end;
  return vocabulary_.find_key(key);
}

void Bpe::split_character(std::string_view piece, uint32_t begin, uint32_t length, std::vector<Symbol>& symbols) const {
  const auto byte_token = [&](uint32_t at) { return byte_tokens_[static_cast<unsigned char>(piece[at])]; };
  const int32_t id = find_character(piece, begin, length);
  if (id >= 0 || !order_.empty()) {  // merging by score joins characters that are no tokens
    symbols.push_back({begin, length, id});
    return;
  }
  bool fallback = options_.byte_fallback && !vocabulary_.byte_level();
  for (uint32_t i = 0; i < length; ++i) fallback = fallback && byte_token(begin + i) >= 0;
  if (fallback) {
    for (uint32_t i = 0; i < length; ++i) symbols.push_back({begin + i, 1, byte_token(begin + i)});
  } else if (options_.unknown >= 0) {
    const bool fuse = options_.fuse_unknown && !symbols.empty() && symbols.back().id == options_.unknown;
    fuse ? symbols.back().length += length : (symbols.push_back({begin, length, options_.unknown}), 0U);
  }
}

Bpe::Merge Bpe::find_merge(std::string_view piece, const Symbol& left, const Symbol& right) const {
  if (left.whole || right.whole) return {};
  if (!order_.empty()) {
    const size_t length = left.length + right.length;
    const int32_t merged = length > longest_token_ ? -1 : vocabulary_.find_key(piece.substr(left.begin, length));
    return merged < 0 ? Merge{} : Merge{order_[static_cast<size_t>(merged)], merged};
  }
  const uint64_t pair = pair_of(left.id, right.id);
  const size_t mask = pairs_.size() - 1;
  for (size_t at = hash_number(pair) & mask; pairs_[at].pair != UINT64_MAX; at = (at + 1) & mask) {
    if (pairs_[at].pair == pair) return {pairs_[at].rank, pairs_[at].merged};
  }
  return {};
}

void Bpe::merge_short(std::string_view piece, std::vector<Symbol>& symbols) const {
  std::array<Merge, short_piece> merges;  // of symbol i with symbol i + 1
  size_t count = symbols.size();
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = find_merge(piece, symbols[i], symbols[i + 1]);
  while (count > 1) {
    const auto end = merges.begin() + static_cast<std::ptrdiff_t>(count - 1);
    const auto best = std::min_element(merges.begin(), end, [](Merge a, Merge b) { return a.rank < b.rank; });
    if (best->rank == UINT32_MAX) break;
    const auto i = static_cast<size_t>(best - merges.begin());
    symbols[i].length += symbols[i + 1].length;
    symbols[i].id = best->merged;
    std::copy(symbols.begin() + static_cast<std::ptrdiff_t>(i + 2),
              symbols.begin() + static_cast<std::ptrdiff_t>(count),
              symbols.begin() + static_cast<std::ptrdiff_t>(i + 1));
    std::copy(best + 1, end, best);
    --count;
    if (i + 1 < count) merges[i] = find_merge(piece, symbols[i], symbols[i + 1]);
    if (i > 0) merges[i - 1] = find_merge(piece, symbols[i - 1], symbols[i]);
  }
  symbols.resize(count);
}

void Bpe::merge_long(std::string_view piece, std::vector<Symbol>& symbols) const {
  std::vector<Queued> queued;
  const auto look = [&](int32_t place) -> std::optional<Queued> {
    const Symbol& left = symbols[static_cast<size_t>(place)];
    if (left.next < 0) return std::nullopt;
    const Symbol& right = symbols[static_cast<size_t>(left.next)];
    const Merge merge = find_merge(piece, left, right);
    if (merge.rank == UINT32_MAX) return std::nullopt;
    return Queued{uint64_t{merge.rank} << 32 | static_cast<uint32_t>(place), left.length, right.length, merge.merged};
  };
  const auto count = static_cast<int32_t>(symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols[static_cast<size_t>(i)].previous = i - 1;
    symbols[static_cast<size_t>(i)].next = i + 1 < count ? i + 1 : -1;
  }
  for (int32_t i = 0; i < count; ++i) {
    if (const auto found = look(i)) queued.push_back(*found);
  }
  std::priority_queue queue(std::greater<Queued>(), std::move(queued));
  while (!queue.empty()) {
    const Queued next = queue.top();
    queue.pop();
    const auto place = static_cast<int32_t>(next.rank_and_place & UINT32_MAX);
    Symbol& left = symbols[static_cast<size_t>(place)];
    if (left.length != next.left_length || left.next < 0) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    if (right.length != next.right_length) continue;
    left.length += right.length;
    left.id = next.merged;
    left.next = right.next;
    right.length = 0;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = place;
    if (left.previous >= 0) {
      if (const auto found = look(left.previous)) queue.push(*found);
    }
    if (const auto found = look(place)) queue.push(*found);
  }
}

void Bpe::emit(std::string_view piece, const Symbol& symbol, std::vector<int32_t>& ids) const {
  if (symbol.id >= 0) {
    ids.push_back(symbol.id);
    return;
  }
  const std::string_view text = piece.substr(symbol.begin, symbol.length);
  const auto token = [this](char byte) { return byte_tokens_[static_cast<unsigned char>(byte)]; };
  if (options_.byte_fallback && std::ranges::all_of(text, [&](char byte) { return token(byte) >= 0; })) {
    for (const char byte : text) ids.push_back(token(byte));
  } else if (options_.unknown >= 0) {
    ids.push_back(options_.unknown);
  }
}

}  // namespace quern
