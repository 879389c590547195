// Request: what the engine is asked, and TokenEvent: what it answers. Plain data; no JSON and no strings of the client.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace quern {

/// How a token is chosen from logits. Order: what is allowed and banned, bias and penalties, temperature, min_p, top_k,
/// typical_p and top_p.
struct SamplingParams {
  float temperature = 1.0F;  // 0: the best token
  float top_p = 1.0F;
  float min_p = 0.0F;
  float typical_p = 1.0F;
  int32_t top_k = 0;  // 0: all
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  float repetition_penalty = 1.0F;
  int32_t repeat_last_n = -1;  // penalties look at so many tokens of prompt and output; -1: at all
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<std::vector<int32_t>> bad_words = {};           // their last token is banned where it would complete them
  std::vector<int32_t> not_first = {};                        // may not be the first token that is generated
  std::shared_ptr<const std::vector<uint32_t>> allowed = {};  // bit i of word i / 32: token i may be chosen; none: all
  uint64_t seed = 0;                                          // the server draws one when the client gave none
  int32_t logprobs = -1;                                      // -1: none; n: of the chosen token and the n best
  int32_t prompt_logprobs = -1;           // the same of the prompt's tokens, from Request::score_from on
  std::vector<int32_t> logprob_ids = {};  // further tokens whose logprobs are told, if any are
  bool tell_logits = false;               // logits are told in place of logprobs
  bool tell_processed = false;            // of the answer's tokens, those that the draw was from
};

/// What a request wants, and what a model is served for: text, a vector, or scores.
enum class OutputKind : uint8_t { tokens, pooled, scores };

/// Computes token masks of a constrained request outside the engine thread. Implemented in text/.
class TokenMask {
 public:
  using Words = std::vector<uint32_t>;  // bit i of word i / 32: token i is allowed
  virtual ~TokenMask() = default;
  /// Accepts `tokens` (as chosen, in order) and then computes the mask of the token after them. Returns at once; `done`
  /// is called exactly once, from any thread, with the mask or with nothing when a token broke the constraint.
  virtual void advance(std::vector<int32_t> tokens, std::function<void(std::optional<Words>)> done) = 0;
  /// Takes back the last `count` accepted tokens.
  virtual void rollback(int count) = 0;
};

enum class FinishReason : uint8_t {
  stop,       // an end token, or a stop token of the request
  length,     // max_tokens or the context is full
  cancelled,  // the client went away
  deadline,   // time was up
  error,
};

struct TokenLogprobs {
  float chosen = 0.0F;
  std::vector<std::pair<int32_t, float>> top;  // best first
  int32_t rank = 0;                            // of a prompt's token: 1 and the number of more probable ones
};

/// News of one request. Exactly one event per request has `finish`; it is the last one.
struct TokenEvent {
  RequestId request{};
  std::vector<int32_t> tokens;                 // new ones; an end token is included, as the last
  std::vector<TokenLogprobs> logprobs;         // one per new token when asked for
  std::vector<TokenLogprobs> prompt_logprobs;  // all that were asked for, in the first event with tokens or the last
  std::vector<float> vector;                   // pooled vector or scores
  std::optional<FinishReason> finish;
  std::optional<int32_t> stop_token;  // which one ended it
  std::string error;                  // with FinishReason::error
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;  // of the prompt, taken from the prefix cache
  int32_t output_tokens = 0;  // so far
  int64_t queued_us = 0;      // from submit to its first slice; set in every event after that
};

/// Where events go. Called on the engine thread; must not block.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void deliver(TokenEvent event) = 0;
};

struct Request {
  RequestId id{};
  ClientId client{};            // equal clients share one part of the machine
  std::vector<int32_t> prompt;  // at least one token
  SamplingParams sampling;
  OutputKind output = OutputKind::tokens;
  int32_t max_tokens = 16;           // at most this many new ones; the server has cut it to what the context holds.
                                     // 0: the prompt's logprobs are the whole answer
  int32_t score_from = 1;            // the first of the prompt's tokens that has logprobs, if they are asked for
  int32_t min_tokens = 0;            // end and stop tokens are banned before
  std::vector<int32_t> end_tokens;   // of the model; empty with ignore_eos
  std::vector<int32_t> stop_tokens;  // of the client
  int32_t priority = 0;              // lower goes first
  int64_t deadline_us = 0;           // now_us() time; 0: none
  uint64_t cache_salt = 0;           // prefixes are shared among equal ones only
  int32_t adapter = 0;               // 0: none
  int32_t second_text = 0;           // of a pair: the first token of its second text; 0: there is one text
  int32_t dimensions = 0;            // pooled: as many values, the first ones; 0: all
  bool normalize = false;            // pooled: to length 1
  std::shared_ptr<TokenMask> mask;   // none: every token is allowed
  std::shared_ptr<EventSink> sink;
};

}  // namespace quern
