#include "apps/pending.h"

#include <atomic>
#include <fmt/format.h>
#include <span>

#include "base/clock.h"

namespace quern {

Result<std::shared_ptr<Pending>> Pending::submit(Engine& engine, Request request) {
  static std::atomic<uint64_t> next{1};
  const auto pending = std::make_shared<Pending>();
  pending->id_ = RequestId{next.fetch_add(1)};
  pending->start_us_ = now_us();
  request.id = pending->id_;
  request.sink = pending;
  const size_t prompt = request.prompt.size();
  switch (engine.submit(std::move(request))) {
    case SubmitResult::accepted: return pending;
    case SubmitResult::queue_full: return Error{"too many requests are waiting"};
    case SubmitResult::too_long:
      return Error{fmt::format("the prompt of {} tokens leaves no room for an answer", prompt)};
    case SubmitResult::stopping: return Error{"the engine is stopping"};
  }
  return Error{"the engine refused the request"};
}

Reply Pending::wait(const std::function<void(std::span<const int32_t>)>& each) {
  Reply answer;
  while (auto event = events_.receive()) {
    if (!event->tokens.empty() && answer.tokens.empty()) answer.times.first_token_us = now_us() - start_us_;
    answer.tokens.insert(answer.tokens.end(), event->tokens.begin(), event->tokens.end());
    if (each && !event->tokens.empty()) each(event->tokens);
    if (!event->finish) continue;
    answer.reason = *event->finish;
    answer.error = event->error;
    answer.vector = std::move(event->vector);
    answer.times.total_us = now_us() - start_us_;
    answer.times.prompt_tokens = event->prompt_tokens;
    answer.times.cached_tokens = event->cached_tokens;
    answer.times.output_tokens = event->output_tokens;
    break;
  }
  return answer;
}

}  // namespace quern
