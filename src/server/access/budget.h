// KeyBudget: how much the holder of one API key may still ask in this minute; KeyUse: one request of theirs. Any
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/guarded.h"
#include "net/http.h"
#include "server/access/api_key.h"
#include "server/openai/errors.h"

namespace quern {

/// Requests and tokens come back evenly over the minute.
class KeyBudget {
 public:
  explicit KeyBudget(const KeyLimits& limits) { set_limits(limits); }

  void set_limits(const KeyLimits& limits);
  int32_t priority() const;
  /// Takes a request and its place, or says why not.
  std::optional<ApiError> enter(int64_t now_us);
  void leave();
  /// Takes the tokens of a prompt, or says why not.
  std::optional<ApiError> spend(int64_t tokens, int64_t now_us);
  /// Takes the tokens of an answer, which has been given: what is missing is owed.
  void charge(int64_t tokens, int64_t now_us);
  /// OpenAI's x-ratelimit-* headers; none without a limit.
  HttpHeaders headers(int64_t now_us) const;

 private:
  struct State {
    KeyLimits limits;
    double requests = 0;  // left
    double tokens = 0;
    int64_t running = 0;
    int64_t filled_us = 0;

    void fill(int64_t now_us);
  };
  mutable Guarded<State> state_;
};

/// Holds the place of a request.
class KeyUse {
 public:
  explicit KeyUse(std::shared_ptr<KeyBudget> budget) : budget_(std::move(budget)) {}
  ~KeyUse() { budget_->leave(); }
  KeyUse(const KeyUse&) = delete;
  KeyUse& operator=(const KeyUse&) = delete;

  std::optional<ApiError> spend(int64_t tokens);
  void charge(int64_t tokens);

 private:
  const std::shared_ptr<KeyBudget> budget_;
};

}  // namespace quern
