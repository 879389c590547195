#include "server/pooling_session.h"

#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/event.h"
#include "base/random.h"
#include "server/session.h"

namespace quern {
namespace {

constexpr size_t kMostInFlight = 64;

}  // namespace

/// Where the events of one text go. It lets go of the session with the last one, however long a request is kept.
class PoolingSession::Sink final : public EventSink {
 public:
  explicit Sink(std::shared_ptr<PoolingSession> session) : session_(std::move(session)) {}

  void deliver(TokenEvent event) override {
    if (!event.finish) return;
    const auto session = std::exchange(session_, nullptr);
    session->model_->live_requests.fetch_sub(1);
    session->call_->responder->post([session, moved = std::move(event)] { session->take(moved); });
  }

 private:
  std::shared_ptr<PoolingSession> session_;
};

PoolingSession::PoolingSession(std::shared_ptr<Call> call, PoolingCall asked, std::shared_ptr<ServedModel> model,
                               std::function<void()> on_end)
    : call_(std::move(call)),
      asked_(std::move(asked)),
      model_(std::move(model)),
      on_end_(std::move(on_end)),
      first_request_(model_->next_request.fetch_add(asked_.inputs.size())),
      vectors_(asked_.inputs.size()),
      running_(asked_.inputs.size(), false) {}

PoolingSession::~PoolingSession() { on_end_(); }

void PoolingSession::start() {
  call_->responder->on_disconnect([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->disconnected();
  });
  call_->responder->post([self = shared_from_this()] {
    if (const auto over = self->spend()) return self->fail(*over);
    self->submit_more();
  });
}

std::optional<ApiError> PoolingSession::spend() {
  return call_->use ? call_->use->spend(asked_.prompt_tokens) : std::nullopt;
}

void PoolingSession::abort(ApiError error) {
  call_->responder->post([self = shared_from_this(), moved = std::move(error)] { self->fail(moved); });
}

void PoolingSession::submit_more() {
  while (!ended_ && next_ < asked_.inputs.size() && in_flight_ < kMostInFlight) {
    if (model_->live_requests.fetch_add(1) == 0) model_->work_since_us = now_us();
    const SubmitResult result = model_->engine->submit(make_request(next_));
    if (result == SubmitResult::accepted) {
      running_[next_++] = true;
      ++in_flight_;
      continue;
    }
    model_->live_requests.fetch_sub(1);
    if (result == SubmitResult::queue_full) {
      if (in_flight_ > 0) return;  // the next one goes when one of these is done
      model_->metrics.count(Refusal::queue_full);
      fail(plain_error(429, "Too many requests are waiting; try again later."));
    } else if (result == SubmitResult::too_long) {
      model_->metrics.count(Refusal::too_long);
      fail({400, "An input does not fit into the server's memory for contexts.", "context_length_exceeded", "input"});
    } else {
      model_->metrics.count(Refusal::draining);
      fail(plain_error(503, "The server is shutting down."));
    }
  }
}

Request PoolingSession::make_request(size_t index) {
  Request request;
  request.id = RequestId{first_request_ + index};
  request.client = call_->principal.client;
  request.prompt = asked_.inputs[index].tokens;
  request.second_text = asked_.inputs[index].second_text;
  request.output = model_->text.options.output;
  request.dimensions = asked_.dimensions;
  request.normalize = asked_.kind == PoolingCall::Kind::embeddings && asked_.normalize;
  request.priority = priority_of(*call_, asked_.priority);
  request.deadline_us = deadline_of(*call_, model_->text.options);
  request.cache_salt = salt_number(call_->principal.salt, "");
  request.sink = std::make_shared<Sink>(shared_from_this());
  return request;
}

void PoolingSession::take(const TokenEvent& event) {
  const size_t index = static_cast<uint64_t>(event.request) - first_request_;
  running_[index] = false;
  --in_flight_;
  if (ended_) return;
  if (event.finish == FinishReason::deadline)
    return fail(plain_error(504, "The request took longer than its deadline."));
  if (event.finish == FinishReason::cancelled) return fail(plain_error(503, "The server is shutting down."));
  if (event.finish == FinishReason::error) {
    log_request(LogLevel::error, call_->id, event.error);
    return fail(plain_error(500, "The engine could not finish this request."));
  }
  note_end(event);
  vectors_[index] = event.vector;
  ++finished_ == vectors_.size() ? complete() : submit_more();
}

/// As for a text that was generated: every one is a request.
void PoolingSession::note_end(const TokenEvent& event) {
  Metrics& metrics = model_->metrics;
  const double seconds = seconds_since(call_->arrived_us);
  const double queued = static_cast<double>(event.queued_us) * 1e-6;
  metrics.prompt_tokens.fetch_add(event.prompt_tokens, std::memory_order_relaxed);
  metrics.cached_tokens.fetch_add(event.cached_tokens, std::memory_order_relaxed);
  metrics.prompt_size.observe(event.prompt_tokens);
  metrics.computed_size.observe(event.prompt_tokens - event.cached_tokens);
  metrics.queue_s.observe(queued);
  metrics.inference_s.observe(seconds - queued);
  metrics.e2e_s.observe(seconds);
  metrics.count(Ended::stop);
}

void PoolingSession::complete() {
  if (asked_.form) {
    call_->send_json(asked_.form(asked_, vectors_, call_->arrived_us));
    return end();
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  call_->send_json(pooling_answer(asked_, vectors_, model_->text.options.pooling, random_hex(),
                                  std::chrono::duration_cast<std::chrono::seconds>(now).count()));
  end();
}

void PoolingSession::fail(const ApiError& error) {
  if (ended_) return;
  model_->metrics.count(error.status == 503 ? Ended::abort : Ended::error);
  call_->send(error);
  end();
}

void PoolingSession::disconnected() {
  if (ended_) return;
  model_->metrics.disconnected.fetch_add(1);
  model_->metrics.count(Ended::abort);
  log_request(LogLevel::info, call_->id,
              fmt::format("the client went away after {} of {} texts", finished_, vectors_.size()));
  end();
}

void PoolingSession::end() {
  ended_ = true;
  for (size_t i = 0; i < running_.size(); ++i) {
    if (running_[i]) model_->engine->cancel(RequestId{first_request_ + i});
  }
}

}  // namespace quern
