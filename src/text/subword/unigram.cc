#include "text/subword/unigram.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "text/pattern/unicode.h"
#include "text/subword/piece_cache.h"

namespace quern {

/// One pass over a piece. Where all ways meet, the tokens so far are settled; sums go on, so that rounding is that of
/// a pass over the whole.
struct Unigram::Walk {
  struct Token {
    uint32_t begin, end;
    int32_t id;
  };
  std::string_view piece;
  std::vector<int32_t>& ids;
  std::vector<Arrival>& places;  // from `origin` on
  std::vector<Token>& tokens;    // of settle()
  uint32_t origin = 0;
  uint32_t furthest = 0;                // the last place with a way to it
  uint32_t unknown_begin = UINT32_MAX;  // of unknown text that is not emitted yet
};

Result<std::unique_ptr<const Unigram>> Unigram::make(const Vocabulary& vocabulary, const UnigramOptions& options,
                                                     std::vector<double> scores) {
  if (!vocabulary.contains(options.unknown)) return Error{"tokenizer: Unigram needs a token for unknown text"};
  scores.resize(static_cast<size_t>(vocabulary.size()));
  std::vector<Trie::Key> keys;
  std::unique_ptr<Unigram> made(new Unigram(vocabulary, options, std::move(scores)));
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (!vocabulary.in_model(id) || vocabulary.special(id) || id == options.unknown) continue;
    const std::string_view key = vocabulary.key(id);
    const double score = made->scores_[static_cast<size_t>(id)];
    if (!std::isfinite(score)) return Error{fmt::format("tokenizer: token {} has the score {}", id, score)};
    keys.push_back({key, id});
    made->longest_ = std::max(made->longest_, key.size());
  }
  ASSIGN_OR_RETURN(made->trie_, Trie::make(std::move(keys)));
  return std::unique_ptr<const Unigram>(std::move(made));
}

Unigram::Unigram(const Vocabulary& vocabulary, const UnigramOptions& options, std::vector<double> scores)
    : vocabulary_(vocabulary), options_(options), owner_(next_piece_owner()), scores_(std::move(scores)) {
  byte_tokens_ = vocabulary.byte_tokens();
}

void Unigram::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  if (options_.whole_texts) return encode_new(piece, ids);
  encode_cached(owner_, piece, ids,
                [this](std::string_view text, std::vector<int32_t>& out) { encode_new(text, out); });
}

void Unigram::encode_new(std::string_view piece, std::vector<int32_t>& ids) const {
  thread_local std::vector<Arrival> places;
  thread_local std::vector<Walk::Token> tokens;
  Walk walk{piece, ids, places, tokens};
  places.assign(1, {0.0, 0, -1});
  for (uint32_t at = 0; at < piece.size();) {
    if (at == walk.furthest) settle(walk, at);
    leave(walk, at);
    at += decode_utf8(piece.data() + at).length;
  }
  settle(walk, static_cast<uint32_t>(piece.size()));
  if (walk.unknown_begin != UINT32_MAX) emit_unknown(piece.substr(walk.unknown_begin), ids);
}

/// Goes on from `at` by every token that the text has there.
void Unigram::leave(Walk& walk, uint32_t at) const {
  const std::string_view piece = walk.piece;
  if (walk.places.size() < at - walk.origin + longest_ + 1) walk.places.resize(at - walk.origin + longest_ * 4 + 64);
  Arrival* const places = walk.places.data() - walk.origin;
  const double score = places[at].score;
  const uint32_t next = at + decode_utf8(piece.data() + at).length;
  uint32_t end = at;
  uint32_t last = at;
  bool character = false;
  for (int32_t node = Trie::root; end < piece.size();) {
    node = trie_.step(node, piece[end]);
    if (node < 0) break;
    ++end;
    const int32_t id = trie_.value(node);
    if (id < 0) continue;
    arrive(places[end], score + scores_[static_cast<size_t>(id)], at, id);
    character = character || end == next;
    last = end;
  }
  if (!character) {
    const double sum = score + options_.unknown_score;
    arrive(places[next], options_.single_precision ? static_cast<float>(sum) : sum, at, options_.unknown);
    last = std::max(last, next);
  }
  walk.furthest = std::max(walk.furthest, last);
}

void Unigram::arrive(Arrival& place, double score, uint32_t begin, int32_t id) const {
  if (place.begin != UINT32_MAX && !(score > place.score)) return;
  place = {options_.single_precision ? static_cast<float>(score) : score, begin, id};
}

/// Emits the tokens up to `end`, which every way passes.
void Unigram::settle(Walk& walk, uint32_t end) const {
  walk.tokens.clear();
  for (uint32_t at = end; at > walk.origin;) {
    const Arrival& arrival = walk.places[at - walk.origin];
    walk.tokens.push_back({arrival.begin, at, arrival.id});
    at = arrival.begin;
  }
  for (auto token = walk.tokens.rbegin(); token != walk.tokens.rend(); ++token) {
    if (token->id == options_.unknown) {
      walk.unknown_begin = std::min(walk.unknown_begin, token->begin);
      continue;
    }
    if (walk.unknown_begin != UINT32_MAX) {
      emit_unknown(walk.piece.substr(walk.unknown_begin, token->begin - walk.unknown_begin), walk.ids);
      walk.unknown_begin = UINT32_MAX;
    }
    walk.ids.push_back(token->id);
  }
  const double score = walk.places[end - walk.origin].score;
  std::fill_n(walk.places.begin(), end - walk.origin + 1, Arrival{});
  walk.places[0] = {score, end, -1};
  walk.origin = end;
}

/// Unknown characters side by side are one unknown.
void Unigram::emit_unknown(std::string_view text, std::vector<int32_t>& ids) const {
  const int32_t whole = vocabulary_.find_key(text);
  const auto token = [this](char byte) { return byte_tokens_[static_cast<unsigned char>(byte)]; };
  if (whole >= 0 && !vocabulary_.special(whole)) {
    ids.push_back(whole);
  } else if (options_.byte_fallback && std::ranges::all_of(text, [&](char byte) { return token(byte) >= 0; })) {
    for (const char byte : text) ids.push_back(token(byte));
  } else {
    ids.push_back(options_.unknown);
  }
}

}  // namespace quern
