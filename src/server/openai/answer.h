// Answer: the text of one choice as its tokens arrive: detokenized, cut at stop strings, told apart into content,
// reasoning and calls, with the logprobs that belong to what is shown. Thread: the shard of its connection.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "server/openai/generation.h"
#include "text/detokenizer.h"
#include "text/reply/reply_parser.h"
#include "text/stop.h"

namespace quern {

/// A token whose text has been shown, with its logprobs.
struct ShownToken {
  int32_t id = 0;
  int64_t text_offset = 0;  // characters of the answer before it
  TokenLogprobs logprobs;
  bool scored = true;  // the first token of a prompt is not
};

/// Why an answer ended, in OpenAI's words; stop_string or stop_token says more.
struct AnswerEnd {
  const char* reason = "stop";
  std::optional<std::string> stop_string;
  std::optional<int32_t> stop_token;
};

/// What one event adds.
struct AnswerPiece {
  std::string text;               // when the reply is not parsed
  std::vector<ReplyPiece> reply;  // when it is; calls have their ids
  std::vector<ShownToken> shown;  // only when logprobs are asked for
  std::vector<int32_t> token_ids;
  std::optional<AnswerEnd> end;
};

class Answer {
 public:
  /// Both must outlive the answer.
  Answer(const TextModel& model, const Generation& generation);

  /// For events without an error. After the end there is nothing more to take.
  AnswerPiece take(const TokenEvent& event);
  bool ended() const { return ended_; }
  int32_t tokens() const { return tokens_; }
  /// Of these, such that belong to the reasoning.
  int32_t reasoning_tokens() const { return reasoning_tokens_; }
  /// Of its tokens; needs their logprobs.
  double mean_logprob() const { return tokens_ == 0 ? 0.0 : logprob_sum_ / tokens_; }

  /// Tools that were called so far.
  int32_t calls() const { return calls_; }

 private:
  void add_token(const TokenEvent& event, size_t index, AnswerPiece& piece);
  std::string text_of(int32_t token);
  void show(std::string text, AnswerPiece& piece);
  void add_reply(std::vector<ReplyPiece> pieces, AnswerPiece& piece);
  void end(AnswerEnd end, AnswerPiece& piece);
  AnswerEnd end_of(const TokenEvent& event) const;

  const TextModel& model_;
  const Generation& generation_;
  const AnswerParams& params_;
  Detokenizer detokenizer_;
  StopMatcher stops_;
  std::optional<ReplyParser> parser_;
  std::vector<ShownToken> pending_;      // tokens whose text is still held back
  std::vector<int64_t> pending_starts_;  // for each: bytes of text before it
  int64_t made_bytes_ = 0;               // text that came out of the detokenizer
  int64_t made_characters_ = 0;
  int64_t shown_bytes_ = 0;
  int32_t tokens_ = 0;
  int32_t reasoning_tokens_ = 0;
  int32_t calls_ = 0;
  double logprob_sum_ = 0.0;
  bool ended_ = false;
};

}  // namespace quern
