#include "apps/load/run.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <sys/resource.h>
#include <utility>

#include "base/clock.h"

namespace quern {
namespace {

using namespace std::chrono_literals;

constexpr size_t kMaxMessage = 300;

/// The connections that the limit of open files allows: each takes four. Raises the limit as far as it goes.
int openable_connections() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return LoadRun::kMaxConnections;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  getrlimit(RLIMIT_NOFILE, &files);
  const auto allowed = static_cast<int64_t>(std::min<rlim_t>(files.rlim_cur, 1 << 20));
  return static_cast<int>(std::clamp<int64_t>((allowed - 64) / 4, 1, LoadRun::kMaxConnections));
}

/// The text in an OpenAI error object, or the JSON itself.
std::string message_of(const Json& error) {
  if (error.is_string()) return error.as_string();
  if (const auto message = error.string("message")) return *message;
  return error.dump();
}

std::string text_of(const Json& choice) {
  if (const auto text = choice.string("text")) return *text;
  const Json* delta = choice.present("delta");
  if (delta == nullptr) return "";
  for (const std::string_view key : {"content", "reasoning_content", "reasoning"}) {
    if (const auto text = delta->string(key); text && !text->empty()) return *text;
  }
  return "";
}

/// A server's words on one line of a terminal, which they do not command.
std::string on_a_line(std::string text) {
  text.resize(std::min(text.size(), kMaxMessage));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return text;
}

int tokens_in(const Json& usage, std::string_view key, int otherwise) {
  const int64_t tokens = usage.integer(key).value_or(otherwise);
  return static_cast<int>(std::clamp<int64_t>(tokens, 0, std::numeric_limits<int>::max()));
}

}  // namespace

void AnswerMeter::take(std::string_view piece, double now_s) {
  for (const std::string& data : events_.add(piece)) {
    if (data == "[DONE]")
      ended_ = true;
    else
      take_event(data, now_s);
  }
}

void AnswerMeter::take_event(std::string_view data, double now_s) {
  const auto event = Json::parse(data);
  if (!event.ok()) {
    if (outcome_.error.empty()) outcome_.error = fmt::format("a chunk is no JSON: {}", event.error().message);
    return;
  }
  const Json* error = event->present("error");
  if (error != nullptr && outcome_.error.empty()) {
    outcome_.error = fmt::format("error in the stream: {}", on_a_line(message_of(*error)));
  }
  const Json* usage = event->present("usage");
  if (usage != nullptr && usage->integer("completion_tokens").value_or(-1) >= 0) {
    outcome_.counted_by_server = true;
    outcome_.output_tokens = tokens_in(*usage, "completion_tokens", 0);
    outcome_.input_tokens = tokens_in(*usage, "prompt_tokens", outcome_.input_tokens);
    const Json* details = usage->present("prompt_tokens_details");
    if (details != nullptr && details->has("cached_tokens")) {
      outcome_.cached_tokens = tokens_in(*details, "cached_tokens", 0);
    }
  }
  const Json* choices = event->present("choices");
  if (choices == nullptr || !choices->is_array() || choices->items().empty()) return;
  const Json& choice = choices->items()[0];
  if (!choice.is_object()) {
    if (outcome_.error.empty()) outcome_.error = fmt::format("a chunk's choice is {} and no object", choice.kind());
    return;
  }
  if (choice.present("finish_reason") != nullptr) ended_ = true;
  take_choice(choice, now_s);
  if (usage == nullptr) return;
  const int before = std::exchange(tokens_so_far_, outcome_.output_tokens);
  outcome_.chunk_tokens.push_back(std::max(0, outcome_.output_tokens - before));
}

void AnswerMeter::take_choice(const Json& choice, double now_s) {
  const double since = now_s - sent_s_;
  if (chunks_++ == 0) {
    outcome_.ttft_s = since;
  } else {
    outcome_.itls_s.push_back(since - outcome_.latency_s);
  }
  outcome_.latency_s = since;
  const std::string text = text_of(choice);
  outcome_.chunk_bytes.push_back(static_cast<int>(text.size()));
  if (text.empty()) return;
  if (chunks_with_text_++ == 0) outcome_.first_text_s = since;
  outcome_.text += text;
}

void AnswerMeter::finish() {
  if (chunks_ == 0 && outcome_.error.empty()) outcome_.error = "the answer has no chunk with choices";
  if (!ended_ && outcome_.error.empty()) outcome_.error = "the answer is cut off: neither a finish_reason nor [DONE]";
  if (!outcome_.counted_by_server) outcome_.output_tokens = chunks_with_text_;
  if (outcome_.chunk_tokens.size() != outcome_.chunk_bytes.size()) outcome_.chunk_tokens.clear();
  outcome_.state = outcome_.error.empty() ? LoadOutcome::State::done : LoadOutcome::State::failed;
}

LoadOutcome send_and_measure(HttpClient& client, const LoadTarget& target, const LoadPrompt& prompt, int64_t begin_us) {
  const HttpRequest request = target.post(prompt);
  LoadOutcome outcome;
  outcome.input_tokens = prompt.input_tokens;
  outcome.start_s = seconds_since(begin_us);
  AnswerMeter meter(outcome, outcome.start_s);
  const auto answer = client.send(request, target.timeout, [&](std::string_view piece) {
    meter.take(piece, seconds_since(begin_us));
    return true;
  });
  if (!answer.ok()) {
    outcome.error = answer.error().message;
  } else if (answer->status / 100 != 2) {
    outcome.error = refusal_of(*answer);
  }
  meter.finish();
  return outcome;
}

std::string refusal_of(const HttpResponse& response) {
  const auto body = Json::parse(response.body);
  const Json* error = body.ok() ? body->present("error") : nullptr;
  const std::string text = error != nullptr ? message_of(*error) : response.body;
  return fmt::format("HTTP {}: {}", response.status, on_a_line(text));
}

LoadRun::LoadRun(const LoadTarget& target, std::span<const LoadPrompt> prompts, int max_in_flight)
    : target_(target),
      prompts_(prompts),
      limit_(std::min(openable_connections(), max_in_flight > 0 ? max_in_flight : kMaxConnections)),
      outcomes_(prompts.size()) {
  workers_.reserve(static_cast<size_t>(limit_));
}

LoadRun::~LoadRun() {
  jobs_.close();
  for (Worker& worker : workers_) {
    if (worker.thread.joinable()) worker.thread.join();
  }
}

void LoadRun::run(std::span<const double> arrivals, const std::function<void(int done)>& on_done) {
  const int count = static_cast<int>(arrivals.size());
  begin_us_ = now_us();
  const auto begin = std::chrono::steady_clock::now();
  const auto due = [&](int index) {
    return begin + std::chrono::microseconds(static_cast<int64_t>(arrivals[static_cast<size_t>(index)] * 1e6));
  };
  int next = 0;
  const auto more = [&] { return next < count && !stopped_; };
  while (more() || in_flight_ > 0) {
    while (const auto event = events_.try_receive()) take(*event);
    while (more() && due(next) <= std::chrono::steady_clock::now()) start(next++);
    if (!more() && in_flight_ == 0) break;
    const auto event = events_.receive_until(more() ? due(next) : std::chrono::steady_clock::now() + 1s);
    if (event) take(*event);
    if (on_done) on_done(done_);
  }
  seconds_ = seconds_since(begin_us_);
}

void LoadRun::take(int event) {
  if (event != kStop) {
    --in_flight_;
    ++done_;
    return;
  }
  stopped_ = true;
  for (const Worker& worker : workers_) worker.client->cancel();
}

void LoadRun::start(int index) {
  ++in_flight_;
  const int workers = static_cast<int>(workers_.size());
  if (in_flight_ > workers && workers < limit_) {
    Worker& worker = workers_.emplace_back();
    worker.client = std::make_unique<HttpClient>(target_.server());
    worker.thread = std::thread([this, client = worker.client.get()] { work(*client); });
  } else if (in_flight_ > workers) {
    ++waited_;
  }
  jobs_.try_send(index);
}

void LoadRun::work(HttpClient& client) {
  while (const auto index = jobs_.receive()) {
    if (!stopped_) measure(client, static_cast<size_t>(*index));
    events_.try_send(int{*index});
  }
}

void LoadRun::measure(HttpClient& client, size_t index) {
  LoadOutcome& outcome = outcomes_[index];
  outcome = send_and_measure(client, target_, prompts_[index], begin_us_);
  if (stopped_ && outcome.state == LoadOutcome::State::failed) outcome.state = LoadOutcome::State::cut;
}

void LoadRun::count(const LoadTokens& tokens) {
  for (LoadOutcome& outcome : outcomes_) {
    if (outcome.state != LoadOutcome::State::done) continue;
    outcome.client_tokens = tokens.count(outcome.text);
    if (!outcome.counted_by_server) outcome.output_tokens = *outcome.client_tokens;
    if (outcome.chunk_tokens.empty()) outcome.chunk_tokens = tokens.by_chunk(outcome.text, outcome.chunk_bytes);
  }
}

double LoadRun::late_p99_s(std::span<const double> arrivals) const {
  std::vector<double> late;
  for (size_t i = 0; i < outcomes_.size(); ++i) {
    if (outcomes_[i].state != LoadOutcome::State::unsent) late.push_back(outcomes_[i].start_s - arrivals[i]);
  }
  std::sort(late.begin(), late.end());
  return percentile(late, 99.0);
}

}  // namespace quern
