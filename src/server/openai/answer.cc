#include "server/openai/answer.h"

#include <algorithm>

namespace quern {
namespace {

int64_t characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

Answer::Answer(std::shared_ptr<const Tokenizer> tokenizer, const AnswerParams& params,
               const std::vector<int32_t>& end_tokens)
    : params_(params),
      end_tokens_(end_tokens),
      detokenizer_(std::move(tokenizer), params.skip_special),
      stops_(params.stops, params.include_stop) {}

AnswerPiece Answer::take(const TokenEvent& event) {
  AnswerPiece piece;
  for (size_t i = 0; i < event.tokens.size() && !ended_; ++i) add_token(event, i, piece);
  if (ended_ || !event.finish) return piece;
  ended_ = true;
  const std::string rest = detokenizer_.finish();
  made_bytes_ += static_cast<int64_t>(rest.size());
  show(stops_.add(rest), piece);
  if (stops_.found()) {
    piece.end = AnswerEnd{"stop", stops_.found(), std::nullopt};
  } else {
    show(stops_.finish(), piece);
    piece.end = end_of(event);
    for (ShownToken& token : pending_) piece.shown.push_back(std::move(token));
  }
  pending_.clear();
  return piece;
}

/// The token that ends an answer adds no text, unless the client wants the end to be seen.
void Answer::add_token(const TokenEvent& event, size_t index, AnswerPiece& piece) {
  const int32_t id = event.tokens[index];
  ++tokens_;
  piece.token_ids.push_back(id);
  const bool last = event.finish == FinishReason::stop && index + 1 == event.tokens.size() && event.stop_token == id;
  if (last && !params_.include_stop) return;
  if (params_.sampling.logprobs >= 0 && index < event.logprobs.size()) {
    pending_.push_back({id, made_characters_, event.logprobs[index]});
    pending_starts_.push_back(made_bytes_);
  }
  const std::string text = detokenizer_.add(id);
  made_bytes_ += static_cast<int64_t>(text.size());
  made_characters_ += characters(text);
  // Stop strings count from min_tokens on, as end tokens do.
  show(tokens_ < params_.min_tokens ? text : stops_.add(text), piece);
  if (!stops_.found()) return;
  piece.end = AnswerEnd{"stop", stops_.found(), std::nullopt};
  ended_ = true;
}

void Answer::show(std::string text, AnswerPiece& piece) {
  shown_bytes_ += static_cast<int64_t>(text.size());
  piece.text += text;
  size_t released = 0;
  while (released < pending_.size() && pending_starts_[released] < shown_bytes_) ++released;
  std::move(pending_.begin(), pending_.begin() + static_cast<int64_t>(released), std::back_inserter(piece.shown));
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<int64_t>(released));
  pending_starts_.erase(pending_starts_.begin(), pending_starts_.begin() + static_cast<int64_t>(released));
}

AnswerEnd Answer::end_of(const TokenEvent& event) const {
  if (event.finish == FinishReason::length) return {"length", std::nullopt, std::nullopt};
  AnswerEnd end;
  if (event.stop_token && !contains(end_tokens_, *event.stop_token)) end.stop_token = event.stop_token;
  return end;
}

}  // namespace quern
