// Wire: writes the answers of one protocol, whole or as the events of a stream. One answer's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "net/http.h"
#include "server/openai/answer.h"
#include "server/openai/errors.h"
#include "server/openai/generation.h"

namespace quern {

/// When what happened to one choice, by now_us(); 0: not yet.
struct AnswerTimes {
  int64_t arrived_us = 0;
  int64_t started_us = 0;  // its prompt was taken up
  int64_t first_token_us = 0;
  int64_t last_token_us = 0;
  int32_t cached_tokens = 0;  // of its prompt
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t reasoning_tokens = -1;  // of the completion; -1: not told apart
  AnswerTimes times = {};         // of the choice that is being told
};

/// A finished choice of a whole answer.
struct WholeChoice {
  struct Call {
    std::string id;
    std::string name;
    std::string arguments;
  };
  int32_t prompt = 0;                 // of the request's
  std::vector<TokenLogprobs> scores;  // of the prompt's tokens but the first, if they are wanted
  std::string text;
  std::string reasoning;
  std::vector<Call> calls;
  std::vector<ShownToken> shown;
  std::vector<int32_t> token_ids;
  AnswerEnd end;
  AnswerTimes times;

  void add(AnswerPiece piece);
};

/// Appends to `out`; one is made for each answer.
class Wire {
 public:
  virtual ~Wire() = default;
  /// When the first token of a choice is there. `scores`: the logprobs of the prompt's tokens but the first, if wanted.
  virtual void first_chunk(std::string& out, int32_t index, const Prompt& prompt,
                           const std::vector<TokenLogprobs>& scores, const Usage& usage) = 0;
  /// What an event added; nothing when it added nothing to be seen.
  virtual void chunk(std::string& out, int32_t index, const AnswerPiece& piece, const Usage& usage) = 0;
  /// The end of a stream.
  virtual void finish(std::string& out, const Usage& usage) = 0;
  /// Instead of that, when something went wrong.
  virtual void error(std::string& out, const ApiError& error) = 0;

  virtual std::string whole(const std::vector<WholeChoice>& choices, const Usage& usage) = 0;

  /// What is sent while there is nothing to say, so that proxies do not take a long prefill for a dead connection.
  virtual void ping(std::string& out) { out += ": ping\n\n"; }
};

/// How an answer is written when that is not OpenAI's way or Anthropic's. Immutable.
class AnswerForm {
 public:
  virtual ~AnswerForm() = default;
  virtual std::unique_ptr<Wire> wire(const Generation& generation, const TextModel& model) const = 0;
};

/// An error in the words of a protocol.
HttpResponse error_response(const ApiError& error, Protocol protocol);

/// For this generation, which outlives it.
std::unique_ptr<Wire> make_wire(const Generation& generation, const TextModel& model);

}  // namespace quern
