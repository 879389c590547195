#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include "base/channel.h"
#include "base/check.h"
#include "base/clock.h"
#include "engine/scheduler.h"

namespace quern {

namespace {

struct Cancel {
  RequestId request{};
};
struct MaskReply {
  RequestId request{};
  std::optional<TokenMask::Words> words;
};
struct ForgetPrefixes {};
struct Stop {};
/// Answered when the engine is idle.
struct DrainQuery {
  std::promise<std::string> answer;
};
using Message = std::variant<Arrival, Cancel, StepResult, MaskReply, ForgetPrefixes, DrainQuery, Stop>;
using Inbox = Channel<Message>;

}  // namespace

/// The engine thread: everything that happens reaches it through one inbox, and it plans while steps are in flight.
class Engine::Loop {
 public:
  Loop(const EngineOptions& options, std::unique_ptr<Executor> executor);
  ~Loop();

  SubmitResult submit(Request request);
  void send(Message message) { inbox_->try_send(message); }
  void stop_accepting() { accepting_ = false; }
  EngineStats stats() const { return stats_.get(); }
  int max_sequence_tokens() const { return scheduler_.max_sequence_tokens(); }
  std::string check_drained();

 private:
  void run();
  std::optional<Message> next_message();
  void take(Message message);
  void advance();
  void send_masks();
  void ask_masks();
  void publish(int64_t worked_us);
  void answer_drain_queries();

  const EngineOptions options_;
  // Shared with masks that may answer when the engine is gone.
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  Scheduler scheduler_;
  std::unique_ptr<Executor> executor_;
  std::optional<int64_t> next_deadline_us_;
  std::vector<DrainQuery> drain_queries_;
  bool stopping_ = false;
  int64_t host_us_ = 0;
  int64_t step_tokens_ = 0;
  decltype(EngineStats::steps_by_tokens) steps_by_tokens_{};
  Latest<EngineStats> stats_;
  std::atomic<bool> accepting_ = true;
  std::atomic<int64_t> accepted_ = 0;
  std::atomic<int64_t> answered_ = 0;
  std::thread thread_;
};

Engine::Loop::Loop(const EngineOptions& options, std::unique_ptr<Executor> executor)
    : options_(options), scheduler_(options), executor_(std::move(executor)) {
  executor_->on_result([inbox = inbox_](StepResult result) { inbox->try_send(Message(std::move(result))); });
  stats_.set(scheduler_.stats());
  thread_ = std::thread([this] { run(); });
}

Engine::Loop::~Loop() {
  accepting_ = false;
  send(Stop{});
  thread_.join();
  executor_.reset();
  inbox_->close();
}

SubmitResult Engine::Loop::submit(Request request) {
  if (!accepting_) return SubmitResult::stopping;
  CHECK(!request.prompt.empty() && request.sink != nullptr);
  if (!scheduler_.fits(request)) return SubmitResult::too_long;
  const int64_t most = int64_t{options_.max_num_seqs} + options_.max_queued_requests;
  if (accepted_.fetch_add(1) - answered_.load() >= most) {
    accepted_.fetch_sub(1);
    return SubmitResult::queue_full;
  }
  Arrival arrival(std::move(request));
  arrival.submitted_us = now_us();
  send(std::move(arrival));
  return SubmitResult::accepted;
}

std::string Engine::Loop::check_drained() {
  DrainQuery query;
  std::future<std::string> answer = query.answer.get_future();
  send(std::move(query));
  return answer.get();
}

void Engine::Loop::run() {
  while (!stopping_ || !scheduler_.idle()) {
    std::optional<Message> message = next_message();
    const int64_t start_us = now_us();
    for (; message; message = inbox_->try_receive()) take(std::move(*message));
    next_deadline_us_ = scheduler_.expire(now_us());
    advance();
    publish(now_us() - start_us);
    answer_drain_queries();
  }
  for (DrainQuery& query : drain_queries_) query.answer.set_value("the engine was stopped");
}

/// Blocks until something happens; nothing when a deadline did.
std::optional<Message> Engine::Loop::next_message() {
  if (!next_deadline_us_) return inbox_->receive();
  const int64_t wait_us = std::max<int64_t>(0, *next_deadline_us_ - now_us());
  return inbox_->receive_until(std::chrono::steady_clock::now() + std::chrono::microseconds(wait_us));
}

void Engine::Loop::take(Message message) {
  if (auto* result = std::get_if<StepResult>(&message)) {
    if (options_.on_result) options_.on_result(*result);
    const std::string reason = scheduler_.dead() ? "" : result->device_error.value_or("");
    scheduler_.commit(std::move(*result), now_us());
    if (!reason.empty() && options_.on_dead) options_.on_dead(reason);
  } else if (auto* arrival = std::get_if<Arrival>(&message)) {
    scheduler_.add(std::move(*arrival));
    if (scheduler_.dead()) scheduler_.end_all(FinishReason::error, "the device does not work any more", true);
    if (stopping_) scheduler_.end_all(FinishReason::cancelled, "", false);
  } else if (const auto* cancel = std::get_if<Cancel>(&message)) {
    scheduler_.cancel(cancel->request);
  } else if (auto* reply = std::get_if<MaskReply>(&message)) {
    scheduler_.give_mask(reply->request, std::move(reply->words));
  } else if (std::holds_alternative<ForgetPrefixes>(message)) {
    scheduler_.forget_prefixes();
  } else if (auto* query = std::get_if<DrainQuery>(&message)) {
    drain_queries_.push_back(std::move(*query));
  } else {
    stopping_ = true;
    scheduler_.end_all(FinishReason::cancelled, "", false);
  }
  ask_masks();
}

/// Matchers start on the new tokens before the next step is planned.
void Engine::Loop::ask_masks() {
  for (Scheduler::MaskQuery& query : scheduler_.take_mask_queries()) {
    query.mask->advance(std::move(query.tokens),
                        [inbox = inbox_, id = query.request](std::optional<TokenMask::Words> words) {
                          inbox->try_send(Message(MaskReply{id, std::move(words)}));
                        });
  }
}

void Engine::Loop::advance() {
  send_masks();
  while (scheduler_.steps_in_flight() < options_.depth) {
    StepPlan plan = scheduler_.plan(now_us());
    if (plan.slices.empty()) break;
    step_tokens_ = 0;
    for (const Slice& slice : plan.slices) step_tokens_ += slice.count;
    const auto size = std::ranges::lower_bound(step_size_bounds, step_tokens_) - step_size_bounds.begin();
    ++steps_by_tokens_[static_cast<size_t>(size)];
    if (options_.on_plan) options_.on_plan(plan);
    executor_->submit(std::move(plan));
    send_masks();
  }
}

void Engine::Loop::send_masks() {
  for (StepMasks& masks : scheduler_.take_masks()) {
    if (options_.on_masks) options_.on_masks(masks);
    executor_->provide(std::move(masks));
  }
}

void Engine::Loop::publish(int64_t worked_us) {
  EngineStats stats = scheduler_.stats();
  if (stats.dead) accepting_ = false;
  host_us_ += worked_us;
  stats.host_us = host_us_;
  stats.step_tokens_last = step_tokens_;
  stats.steps_by_tokens = steps_by_tokens_;
  int64_t answered = 0;
  for (const int64_t count : stats.requests_finished) answered += count;
  answered_ = answered;
  stats_.set(stats);
}

void Engine::Loop::answer_drain_queries() {
  if (drain_queries_.empty() || !scheduler_.idle()) return;
  const EngineStats stats = scheduler_.stats();
  std::string wrong = scheduler_.check();
  if (wrong.empty() && stats.pages_free + stats.pages_cached != stats.pages_total) wrong = "pages are used by nobody";
  int64_t answered = 0;
  for (const int64_t count : stats.requests_finished) answered += count;
  if (wrong.empty() && answered != stats.requests_accepted) wrong = "not every request was answered once";
  for (DrainQuery& query : drain_queries_) query.answer.set_value(wrong);
  drain_queries_.clear();
}

Engine::Engine(const EngineOptions& options, std::unique_ptr<Executor> executor)
    : loop_(std::make_unique<Loop>(options, std::move(executor))) {}
Engine::~Engine() = default;
SubmitResult Engine::submit(Request request) { return loop_->submit(std::move(request)); }
void Engine::cancel(RequestId id) { loop_->send(Cancel{id}); }
void Engine::stop_accepting() { loop_->stop_accepting(); }
EngineStats Engine::stats() const { return loop_->stats(); }
int Engine::max_sequence_tokens() const { return loop_->max_sequence_tokens(); }
void Engine::reset_prefix_cache() { loop_->send(ForgetPrefixes{}); }
std::string Engine::check_drained() { return loop_->check_drained(); }

}  // namespace quern
