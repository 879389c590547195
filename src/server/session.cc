#include "server/session.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <openssl/sha.h>
#include <random>
#include <utility>

#include "base/clock.h"
#include "base/event.h"

namespace quern {
namespace {

uint64_t random_seed() {
  thread_local std::mt19937_64 engine{std::random_device{}()};
  return engine();
}

}  // namespace

uint64_t salt_number(const std::string& tenant, const std::string& salt) {
  if (tenant.empty() && salt.empty()) return 0;
  const std::string text = fmt::format("{}:{}{}", tenant.size(), tenant, salt);
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  uint64_t number = 0;
  std::memcpy(&number, digest, sizeof number);
  return number == 0 ? 1 : number;
}

int32_t priority_of(const Call& call, int32_t asked) {
  const int64_t sum = int64_t{asked} + (call.principal.budget ? call.principal.budget->priority() : 0);
  return static_cast<int32_t>(std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX));
}

int64_t deadline_of(const Call& call, const ServerOptions& options) {
  double timeout_s = options.request_timeout_s;
  const std::string asked(call.request.header("x-request-timeout-ms"));
  const double asked_s = asked.empty() ? 0 : std::strtod(asked.c_str(), nullptr) / 1000;
  if (asked_s > 0 && (timeout_s <= 0 || asked_s < timeout_s)) timeout_s = asked_s;
  return timeout_s > 0 ? call.arrived_us + static_cast<int64_t>(timeout_s * 1e6) : 0;
}

/// Where the events of one request go. It lets go of the session with the last one, however long a request is kept.
class Session::Sink final : public EventSink {
 public:
  explicit Sink(std::shared_ptr<Session> session) : session_(std::move(session)) {}

  void deliver(TokenEvent event) override {
    const auto session = event.finish ? std::exchange(session_, nullptr) : session_;
    if (session) session->deliver(std::move(event));
  }

 private:
  std::shared_ptr<Session> session_;
};

Session::Session(std::shared_ptr<Call> call, Generation generation, std::shared_ptr<ServedModel> model,
                 std::function<void()> on_end)
    : call_(std::move(call)),
      generation_(std::move(generation)),
      model_(std::move(model)),
      on_end_(std::move(on_end)),
      wire_(make_wire(generation_, model_->text)),
      first_request_(
          model_->next_request.fetch_add(generation_.prompts.size() * static_cast<size_t>(generation_.params.best_of))),
      scores_(generation_.prompts.size()) {
  for (size_t p = 0; p < generation_.prompts.size(); ++p) {
    usage_.prompt_tokens += static_cast<int64_t>(generation_.prompts[p].tokens.size());
    for (int32_t k = 0; k < generation_.params.best_of; ++k) {
      choices_.emplace_back(Answer(model_->text, generation_), static_cast<int32_t>(p));
    }
  }
  if (generation_.chat && model_->text.options.reply_format.separates_reasoning()) usage_.reasoning_tokens = 0;
  open_choices_ = choices_.size();
  model_->metrics.streams_open.fetch_add(1);
}

Session::~Session() {
  model_->metrics.streams_open.fetch_sub(1);
  on_end_();
}

void Session::start() {
  call_->responder->on_disconnect([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->disconnected();
  });
  call_->responder->post([self = shared_from_this()] { self->submit_all(); });
}

void Session::abort(ApiError error) {
  call_->responder->post([self = shared_from_this(), moved = std::move(error)] { self->fail(moved); });
}

/// Thread: engine.
void Session::deliver(TokenEvent event) {
  if (event.finish) model_->live_requests.fetch_sub(1);
  call_->responder->post([self = shared_from_this(), moved = std::move(event)] { self->take(moved); });
}

void Session::submit_all() {
  if (ended_) return;
  if (call_->use) {
    if (const auto over = call_->use->spend(usage_.prompt_tokens)) return refuse(*over);
  }
  model_->metrics.n.observe(generation_.params.n);
  if (generation_.params.max_tokens == 0 && !generation_.scores_prompts()) return answer_without_engine();
  const auto interval = model_->text.options.ping_interval;
  if (generation_.params.stream && interval.count() > 0) {
    call_->responder->on_idle(interval, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->keep_alive();
    });
  }
  for (int32_t i = 0; i < static_cast<int32_t>(choices_.size()); ++i) {
    if (!submit(i)) return;
  }
}

bool Session::submit(int32_t index) {
  if (model_->live_requests.fetch_add(1) == 0) model_->work_since_us = now_us();
  const SubmitResult result = model_->engine->submit(make_request(index));
  if (result == SubmitResult::accepted) {
    Choice& choice = choices_[static_cast<size_t>(index)];
    choice.submitted = true;
    model_->metrics.max_tokens.observe(generation_.prompts[static_cast<size_t>(choice.prompt)].max_tokens);
    return true;
  }
  model_->live_requests.fetch_sub(1);
  if (result == SubmitResult::queue_full) {
    model_->metrics.count(Refusal::queue_full);
    refuse(plain_error(429, "Too many requests are waiting; try again later."));
  } else if (result == SubmitResult::too_long) {
    model_->metrics.count(Refusal::too_long);
    const ServerOptions& options = model_->text.options;
    refuse(
        {400,
         fmt::format(
             "This model's maximum context length is {} tokens. However, {} input tokens and their answer do not fit "
             "into the server's memory for contexts.",
             options.max_model_len, usage_.prompt_tokens),
         "context_length_exceeded",
         generation_.response ? "input"
         : generation_.chat   ? "messages"
                              : "prompt"});
  } else {
    model_->metrics.count(Refusal::draining);
    refuse(plain_error(503, "The server is shutting down."));
  }
  return false;
}

Request Session::make_request(int32_t index) {
  const AnswerParams& params = generation_.params;
  const ServerOptions& options = model_->text.options;
  const Prompt& prompt = generation_.prompts[static_cast<size_t>(index / params.best_of)];
  Request request;
  request.id = RequestId{first_request_ + static_cast<uint64_t>(index)};
  request.client = call_->principal.client;
  request.prompt = prompt.tokens;
  request.sampling = params.sampling;
  if (params.seed) {
    request.sampling.seed = static_cast<uint64_t>(*params.seed) + static_cast<uint64_t>(index % params.best_of);
  } else {
    request.sampling.seed = options.seed != 0 ? options.seed + static_cast<uint64_t>(request.id) : random_seed();
  }
  if (params.best_of > params.n) request.sampling.logprobs = std::max(0, params.sampling.logprobs);
  if (scores_prompt(index)) {
    request.sampling.prompt_logprobs =
        std::max(params.prompt_logprobs.value_or(0), generation_.echoes_logprobs() ? params.sampling.logprobs : 0);
  }
  request.max_tokens = prompt.max_tokens;
  request.min_tokens = params.min_tokens;
  if (!params.ignore_eos) request.end_tokens = options.end_tokens;
  request.stop_tokens = params.stop_tokens;
  request.priority = priority_of(*call_, params.priority);
  request.deadline_us = deadline_of(*call_, options);
  if (generation_.compiled) request.mask = model_->constraints.mask(*generation_.compiled);
  request.cache_salt = salt_number(call_->principal.salt, params.cache_salt);
  request.sink = std::make_shared<Sink>(shared_from_this());
  return request;
}

/// The first choice of a prompt tells its scores for all, unless each is streamed on its own.
bool Session::scores_prompt(int32_t index) const {
  return generation_.scores_prompts() && (generation_.params.stream || index % generation_.params.best_of == 0);
}

/// max_tokens 0: the echoed prompt is the whole answer.
void Session::answer_without_engine() {
  for (size_t i = 0; i < choices_.size(); ++i) {
    choices_[i].whole.end.reason = "length";
    if (!generation_.params.stream) continue;
    begin_stream();
    AnswerPiece piece;
    piece.end = AnswerEnd{"length", std::nullopt, std::nullopt};
    wire_->first_chunk(out_, static_cast<int32_t>(i), generation_.prompts[static_cast<size_t>(choices_[i].prompt)], {},
                       usage_);
    wire_->chunk(out_, static_cast<int32_t>(i), piece, usage_);
  }
  open_choices_ = 0;
  complete();
}

void Session::take(const TokenEvent& event) {
  if (ended_) return;
  const int32_t index = index_of(event.request);
  Choice& choice = choices_[static_cast<size_t>(index)];
  if (event.finish) choice.submitted = false;
  if (choice.answer.ended()) return;
  if (event.finish == FinishReason::error || event.finish == FinishReason::cancelled ||
      event.finish == FinishReason::deadline) {
    return fail_from(event);
  }
  const bool first = choice.first_token_us == 0 && (!event.tokens.empty() || event.finish);
  if (first && index % generation_.params.best_of == 0) usage_.cached_tokens += event.cached_tokens;
  if (scores_prompt(index) && !event.prompt_logprobs.empty() && !generation_.params.stream) {
    scores_[static_cast<size_t>(choice.prompt)] = event.prompt_logprobs;
  }
  note_times(choice, event);
  if (first) choice.cached_tokens = event.cached_tokens;
  usage_.times = choice.times(call_->arrived_us);
  const int32_t before = choice.answer.tokens();
  const int32_t thought_before = choice.answer.reasoning_tokens();
  AnswerPiece piece = choice.answer.take(event);
  const int32_t added = choice.answer.tokens() - before;
  usage_.completion_tokens += added;
  usage_.reasoning_tokens += choice.answer.reasoning_tokens() - thought_before;
  model_->metrics.generation_tokens.fetch_add(added, std::memory_order_relaxed);
  if (piece.end) note_end(choice, event);
  if (first && generation_.params.stream) {
    begin_stream();
    wire_->first_chunk(out_, index, generation_.prompts[static_cast<size_t>(choice.prompt)], event.prompt_logprobs,
                       usage_);
  }
  take_piece(index, std::move(piece));
}

void Session::take_piece(int32_t index, AnswerPiece piece) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  if (generation_.params.stream) {
    wire_->chunk(out_, index, piece, usage_);
  } else {
    choice.whole.add(piece);
    choice.whole.times = usage_.times;
  }
  if (piece.end) {
    if (choice.submitted) model_->engine->cancel(RequestId{first_request_ + static_cast<uint64_t>(index)});
    --open_choices_;
    finish_reason_ = piece.end->reason;
    model_->metrics.tool_calls.fetch_add(choice.answer.calls(), std::memory_order_relaxed);
    model_->metrics.count(std::string_view(piece.end->reason) == "length" ? Ended::length : Ended::stop);
  }
  if (open_choices_ == 0) return complete();
  if (!out_.empty()) call_->responder->write(std::exchange(out_, {}));
}

void Session::note_times(Choice& choice, const TokenEvent& event) {
  if (event.tokens.empty()) return;
  const int64_t now = now_us();
  Metrics& metrics = model_->metrics;
  if (choice.first_token_us == 0) {
    choice.first_token_us = now;
    choice.queued_us = event.queued_us;
    metrics.first_token_s.observe(static_cast<double>(now - call_->arrived_us) * 1e-6);
    metrics.queue_s.observe(static_cast<double>(event.queued_us) * 1e-6);
    metrics.prefill_s.observe(static_cast<double>(now - call_->arrived_us - event.queued_us) * 1e-6);
    if (index_of(event.request) % generation_.params.best_of == 0) {  // as in usage: a prompt counts once
      metrics.prompt_tokens.fetch_add(event.prompt_tokens, std::memory_order_relaxed);
      metrics.cached_tokens.fetch_add(event.cached_tokens, std::memory_order_relaxed);
    }
  } else {
    metrics.inter_token_s.observe_many(
        static_cast<double>(now - choice.last_token_us) * 1e-6 / static_cast<double>(event.tokens.size()),
        static_cast<int64_t>(event.tokens.size()));
  }
  choice.last_token_us = now;
}

void Session::note_end(const Choice& choice, const TokenEvent& event) {
  const int64_t now = now_us();
  const int32_t tokens = choice.answer.tokens();
  const auto seconds = [](int64_t us) { return static_cast<double>(us) * 1e-6; };
  Metrics& metrics = model_->metrics;
  metrics.e2e_s.observe(seconds(now - call_->arrived_us));
  metrics.inference_s.observe(seconds(now - call_->arrived_us - event.queued_us));
  metrics.decode_s.observe(choice.first_token_us == 0 ? 0 : seconds(now - choice.first_token_us));
  if (tokens > 1) metrics.token_mean_s.observe(seconds(now - choice.first_token_us) / (tokens - 1));
  metrics.prompt_size.observe(event.prompt_tokens);
  metrics.computed_size.observe(event.prompt_tokens - event.cached_tokens);
  metrics.generation_size.observe(tokens);
  most_tokens_ = std::max(most_tokens_, tokens);
}

void Session::fail_from(const TokenEvent& event) {
  if (event.finish == FinishReason::deadline)
    return fail(plain_error(504, "The request took longer than its deadline."));
  if (event.finish == FinishReason::cancelled) return fail(plain_error(503, "The server is shutting down."));
  log_request(LogLevel::error, call_->id, event.error);
  fail(plain_error(500, "The engine could not finish this request."));
}

void Session::fail(const ApiError& error) {
  if (ended_) return;
  model_->metrics.count(error.status == 503 ? Ended::abort : Ended::error);
  refuse(error);
}

void Session::refuse(const ApiError& error) {
  if (streaming_) {
    wire_->error(out_, error);
    call_->responder->write(std::exchange(out_, {}));
    call_->responder->end();
  } else {
    call_->send(error);
  }
  end();
}

void Session::begin_stream() {
  if (std::exchange(streaming_, true)) return;
  call_->begin_events();
}

void Session::keep_alive() {
  if (ended_) return;
  begin_stream();
  wire_->ping(out_);
  call_->responder->write(std::exchange(out_, {}));
}

void Session::disconnected() {
  if (ended_) return;
  model_->metrics.disconnected.fetch_add(1);
  model_->metrics.count(Ended::abort);
  log_request(LogLevel::info, call_->id, fmt::format("the client went away after {} tokens", usage_.completion_tokens));
  end();
}

void Session::complete() {
  model_->metrics.most_tokens.observe(most_tokens_);
  if (streaming_) {
    wire_->finish(out_, usage_);
    call_->responder->write(std::exchange(out_, {}));
    call_->responder->end();
  } else {
    call_->send_json(wire_->whole(best_choices(), usage_));
  }
  log_end();
  end();
}

/// What a request was and took; nothing of its texts.
void Session::log_end() {
  const auto ms = [](int64_t us) { return std::round(static_cast<double>(us) / 100) / 10; };
  const int64_t total_us = now_us() - call_->arrived_us;
  int64_t first_us = 0;
  int64_t queued_us = 0;
  for (const Choice& choice : choices_) {
    const int64_t at = choice.first_token_us;
    if (at > 0 && (first_us == 0 || at < first_us)) first_us = at;
    queued_us = std::max(queued_us, choice.queued_us);
  }
  const int64_t wait_us = first_us == 0 ? total_us : first_us - call_->arrived_us;
  const std::string line = fmt::format(
      "{} of {} tokens ({} cached) made {}: {:.1f} ms, the first after {:.1f}, {:.1f} queued", generation_.model,
      usage_.prompt_tokens, usage_.cached_tokens, usage_.completion_tokens, ms(total_us), ms(wait_us), ms(queued_us));
  log_request(LogLevel::info, call_->id, line,
              {{"model", generation_.model},
               {"prompt_tokens", usage_.prompt_tokens},
               {"cached_tokens", usage_.cached_tokens},
               {"completion_tokens", usage_.completion_tokens},
               {"queue_ms", ms(queued_us)},
               {"ttft_ms", ms(wait_us)},
               {"total_ms", ms(total_us)},
               {"finish_reason", finish_reason_}});
}

/// Of each prompt those n whose tokens were most probable on average, the best first; all in order when n are made.
std::vector<WholeChoice> Session::best_choices() {
  const auto made = static_cast<size_t>(generation_.params.best_of);
  const auto given = static_cast<size_t>(generation_.params.n);
  std::vector<WholeChoice> best;
  for (size_t first = 0; first < choices_.size(); first += made) {
    std::vector<Choice*> choices;
    for (size_t k = 0; k < made; ++k) choices.push_back(&choices_[first + k]);
    if (made > given) {
      std::ranges::sort(choices, [](const Choice* a, const Choice* b) {
        const double difference = a->answer.mean_logprob() - b->answer.mean_logprob();
        return difference != 0 ? difference > 0 : a < b;
      });
    }
    for (size_t k = 0; k < given; ++k) {
      choices[k]->whole.prompt = choices[k]->prompt;
      choices[k]->whole.scores = scores_[static_cast<size_t>(choices[k]->prompt)];
      best.push_back(std::move(choices[k]->whole));
    }
  }
  return best;
}

void Session::end() {
  ended_ = true;
  if (call_->use) call_->use->charge(usage_.completion_tokens);
  if (streaming_) call_->end_events();
  cancel_rest();
}

void Session::cancel_rest() {
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (choices_[i].submitted) model_->engine->cancel(RequestId{first_request_ + i});
    choices_[i].submitted = false;
  }
}

}  // namespace quern
