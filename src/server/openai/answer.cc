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

Answer::Answer(const TextModel& model, const Generation& generation)
    : model_(model),
      generation_(generation),
      params_(generation.params),
      detokenizer_(model.tokenizer, params_.skip_special),
      stops_(params_.stops, params_.include_stop) {
  if (generation.reply.parsed) parser_.emplace(model.options.reply_format, generation.reply.options);
}

AnswerPiece Answer::take(const TokenEvent& event) {
  AnswerPiece piece;
  for (size_t i = 0; i < event.tokens.size() && !ended_; ++i) add_token(event, i, piece);
  if (ended_ || !event.finish) return piece;
  const std::string rest = detokenizer_.finish();
  made_bytes_ += static_cast<int64_t>(rest.size());
  show(stops_.add(rest), piece);
  if (stops_.found()) {
    end(AnswerEnd{"stop", stops_.found(), std::nullopt}, piece);
  } else {
    show(stops_.finish(), piece);
    for (ShownToken& token : pending_) piece.shown.push_back(std::move(token));
    end(end_of(event), piece);
  }
  pending_.clear();
  return piece;
}

/// The token that ends an answer adds no text, unless the client wants the end to be seen. After an echoed prompt it
/// has a place among the logprobs all the same: programs that score texts leave the last one away, whatever it is.
void Answer::add_token(const TokenEvent& event, size_t index, AnswerPiece& piece) {
  const int32_t id = event.tokens[index];
  ++tokens_;
  piece.token_ids.push_back(id);
  if (index < event.logprobs.size()) logprob_sum_ += static_cast<double>(event.logprobs[index].chosen);
  const bool last = event.finish == FinishReason::stop && index + 1 == event.tokens.size() && event.stop_token == id;
  const bool unseen = last && !params_.include_stop;
  if (params_.sampling.logprobs >= 0 && index < event.logprobs.size() && (!unseen || params_.echo)) {
    pending_.push_back({id, made_characters_, event.logprobs[index]});
    pending_starts_.push_back(made_bytes_);
  }
  if (unseen) return;
  const std::string text = text_of(id);
  made_bytes_ += static_cast<int64_t>(text.size());
  made_characters_ += characters(text);
  const bool was_thinking = parser_ && parser_->thinking();
  // Stop strings count from min_tokens on, as end tokens do.
  show(tokens_ < params_.min_tokens ? text : stops_.add(text), piece);
  if (was_thinking || (parser_ && parser_->thinking())) ++reasoning_tokens_;
  if (stops_.found()) {
    end(AnswerEnd{"stop", stops_.found(), std::nullopt}, piece);
  } else if (parser_ && parser_->done()) {
    end(AnswerEnd(), piece);
  }
}

/// Special tokens that mark parts of the reply are seen by the parser, whether they are shown or not.
std::string Answer::text_of(int32_t token) {
  std::string text = detokenizer_.add(token);
  if (!parser_) return text;
  const std::string_view marker = model_.options.reply_format.marker(token);
  return marker.empty() ? text : kSpecialMark + std::string(marker);
}

void Answer::show(std::string text, AnswerPiece& piece) {
  shown_bytes_ += static_cast<int64_t>(text.size());
  if (parser_) {
    add_reply(parser_->add(text), piece);
  } else {
    piece.text += text;
  }
  size_t released = 0;
  while (released < pending_.size() && pending_starts_[released] < shown_bytes_) ++released;
  std::move(pending_.begin(), pending_.begin() + static_cast<int64_t>(released), std::back_inserter(piece.shown));
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<int64_t>(released));
  pending_starts_.erase(pending_starts_.begin(), pending_starts_.begin() + static_cast<int64_t>(released));
}

void Answer::add_reply(std::vector<ReplyPiece> pieces, AnswerPiece& piece) {
  for (ReplyPiece& one : pieces) {
    if (one.kind == ReplyPiece::Kind::reasoning && !params_.include_reasoning) continue;
    if (one.kind == ReplyPiece::Kind::call) {
      const Dialect* dialect = model_.options.reply_format.dialect();
      one.id = call_id(dialect->ids, one.id, one.text, generation_.reply.earlier_calls + calls_++);
    }
    piece.reply.push_back(std::move(one));
  }
}

/// An answer with calls ends because of them, as OpenAI has it; not when the client named the tool.
void Answer::end(AnswerEnd end, AnswerPiece& piece) {
  ended_ = true;
  if (parser_) add_reply(parser_->finish(), piece);
  const ToolUse& tools = generation_.reply.tools;
  if (calls_ > 0 && std::string_view(end.reason) == "stop" && tools.choice != ToolUse::Choice::named)
    end.reason = tools.legacy ? "function_call" : "tool_calls";
  piece.end = std::move(end);
}

AnswerEnd Answer::end_of(const TokenEvent& event) const {
  if (event.finish == FinishReason::length) return {"length", std::nullopt, std::nullopt};
  AnswerEnd end;
  if (event.stop_token && !contains(model_.options.end_tokens, *event.stop_token)) end.stop_token = event.stop_token;
  return end;
}

}  // namespace quern
