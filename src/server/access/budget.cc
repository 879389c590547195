#include "server/access/budget.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <utility>

#include "base/clock.h"

namespace quern {
namespace {

ApiError over(std::string what, double wait_s) {
  ApiError error = plain_error(429, fmt::format("This API key has reached its limit of {}; try again later.", what));
  error.retry_after_s = static_cast<int>(std::clamp(std::ceil(wait_s), 1.0, 3600.0));
  return error;
}

double seconds_to(double wanted, double left, int64_t per_minute) {
  return std::max(0.0, wanted - left) * 60 / static_cast<double>(per_minute);
}

void add_headers(HttpHeaders& headers, std::string_view what, int64_t limit, double left) {
  if (limit == 0) return;
  const auto remaining = static_cast<int64_t>(std::max(0.0, std::floor(left)));
  headers.emplace_back(fmt::format("X-RateLimit-Limit-{}", what), std::to_string(limit));
  headers.emplace_back(fmt::format("X-RateLimit-Remaining-{}", what), std::to_string(remaining));
  headers.emplace_back(fmt::format("X-RateLimit-Reset-{}", what),
                       fmt::format("{:.3f}s", seconds_to(static_cast<double>(limit), left, limit)));
}

}  // namespace

void KeyBudget::State::fill(int64_t now_us) {
  const double minutes = static_cast<double>(now_us - std::exchange(filled_us, now_us)) / 60e6;
  const auto refill = [&](double& left, int64_t limit) {
    left = std::min(static_cast<double>(limit), left + minutes * static_cast<double>(limit));
  };
  refill(requests, limits.requests_per_minute);
  refill(tokens, limits.tokens_per_minute);
}

/// A limit that is new or other than before begins unused.
void KeyBudget::set_limits(const KeyLimits& limits) {
  state_.with([&](State& state) {
    const KeyLimits before = std::exchange(state.limits, limits);
    if (before.requests_per_minute != limits.requests_per_minute)
      state.requests = static_cast<double>(limits.requests_per_minute);
    if (before.tokens_per_minute != limits.tokens_per_minute)
      state.tokens = static_cast<double>(limits.tokens_per_minute);
  });
}

int32_t KeyBudget::priority() const {
  return state_.with([](const State& state) { return state.limits.priority; });
}

std::optional<ApiError> KeyBudget::enter(int64_t now_us) {
  return state_.with([&](State& state) -> std::optional<ApiError> {
    state.fill(now_us);
    const KeyLimits& limits = state.limits;
    if (limits.concurrency > 0 && state.running >= limits.concurrency)
      return over(fmt::format("{} requests at the same time", limits.concurrency), 1);
    if (limits.requests_per_minute > 0 && state.requests < 1)
      return over(fmt::format("{} requests per minute", limits.requests_per_minute),
                  seconds_to(1, state.requests, limits.requests_per_minute));
    if (limits.tokens_per_minute > 0 && state.tokens < 1)
      return over(fmt::format("{} tokens per minute", limits.tokens_per_minute),
                  seconds_to(1, state.tokens, limits.tokens_per_minute));
    ++state.running;
    state.requests -= 1;
    return std::nullopt;
  });
}

void KeyBudget::leave() {
  state_.with([](State& state) { --state.running; });
}

/// A prompt beyond the limit of a whole minute needs a full minute's tokens, and leaves a debt.
std::optional<ApiError> KeyBudget::spend(int64_t tokens, int64_t now_us) {
  return state_.with([&](State& state) -> std::optional<ApiError> {
    state.fill(now_us);
    const int64_t limit = state.limits.tokens_per_minute;
    if (limit == 0) return std::nullopt;
    const auto wanted = static_cast<double>(std::min(tokens, limit));
    if (state.tokens < wanted)
      return over(fmt::format("{} tokens per minute", limit), seconds_to(wanted, state.tokens, limit));
    state.tokens -= static_cast<double>(tokens);
    return std::nullopt;
  });
}

void KeyBudget::charge(int64_t tokens, int64_t now_us) {
  state_.with([&](State& state) {
    state.fill(now_us);
    if (state.limits.tokens_per_minute > 0) state.tokens -= static_cast<double>(tokens);
  });
}

HttpHeaders KeyBudget::headers(int64_t now_us) const {
  return state_.with([&](State& state) {
    state.fill(now_us);
    HttpHeaders headers;
    add_headers(headers, "Requests", state.limits.requests_per_minute, state.requests);
    add_headers(headers, "Tokens", state.limits.tokens_per_minute, state.tokens);
    return headers;
  });
}

std::optional<ApiError> KeyUse::spend(int64_t tokens) { return budget_->spend(tokens, now_us()); }
void KeyUse::charge(int64_t tokens) { budget_->charge(tokens, now_us()); }

}  // namespace quern
