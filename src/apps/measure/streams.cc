#include "apps/measure/streams.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "apps/pending.h"
#include "base/channel.h"
#include "base/clock.h"

namespace quern {
namespace {

/// Notes when tokens come. Events come from the engine's thread; the owner reads after the end.
class Stream final : public EventSink {
 public:
  explicit Stream(Channel<int>& ended) : ended_(ended) {}

  void deliver(TokenEvent event) override {
    const int64_t now = now_us();
    for (size_t i = 0; i < event.tokens.size(); ++i) times_us.push_back(now);
    if (!event.finish) return;
    error = event.error;
    ended_.try_send(0);
  }

  RequestId id{};
  std::vector<int64_t> times_us;
  std::string error;

 private:
  Channel<int>& ended_;
};

LoadOutcome outcome_of(const Stream& stream, int64_t begin_us, int64_t start_us, int prompt) {
  const auto seconds = [](int64_t us) { return static_cast<double>(us) * 1e-6; };
  LoadOutcome outcome;
  outcome.start_s = seconds(start_us - begin_us);
  outcome.error = stream.error;
  outcome.input_tokens = prompt;
  outcome.counted_by_server = true;
  const std::vector<int64_t>& times = stream.times_us;
  outcome.output_tokens = static_cast<int>(times.size());
  outcome.state = times.empty() || !stream.error.empty() ? LoadOutcome::State::failed : LoadOutcome::State::done;
  if (times.empty()) return outcome;
  outcome.ttft_s = outcome.first_text_s = seconds(times.front() - start_us);
  outcome.latency_s = seconds(times.back() - start_us);
  for (size_t i = 1; i < times.size(); ++i) outcome.itls_s.push_back(seconds(times[i] - times[i - 1]));
  return outcome;
}

/// Time of one step in the span when every stream decodes.
double step_seconds(const std::vector<std::shared_ptr<Stream>>& streams) {
  int64_t begin = 0;
  int64_t end = INT64_MAX;
  for (const auto& stream : streams) {
    begin = std::max(begin, stream->times_us.front());
    end = std::min(end, stream->times_us.back());
  }
  int64_t tokens = 0;
  for (const auto& stream : streams) {
    tokens += std::count_if(stream->times_us.begin(), stream->times_us.end(),
                            [&](int64_t time) { return time > begin && time <= end; });
  }
  if (end <= begin || tokens == 0) return 0.0;
  return static_cast<double>(end - begin) * 1e-6 * static_cast<double>(streams.size()) / static_cast<double>(tokens);
}

}  // namespace

std::vector<int32_t> Streams::random_tokens(int count) {
  const int vocab =
      instance_.tokenizer ? std::min(instance_.tokenizer->size(), instance_.spec().vocab) : instance_.spec().vocab;
  std::uniform_int_distribution<int32_t> any(0, vocab - 1);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = any(random_);
  return tokens;
}

Request Streams::request_of(int prompt, int output) {
  static std::atomic<uint64_t> next{uint64_t{1} << 40};  // beside the numbers of Pending
  Request request;
  request.prompt = random_tokens(prompt);
  request.max_tokens = output;
  request.min_tokens = output;
  request.sampling.temperature = 0.0F;
  request.id = RequestId{next.fetch_add(1)};
  return request;
}

Result<StreamTimes> Streams::run(int count, int prompt, int output) {
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) requests.push_back(request_of(prompt, output));
  Channel<int> ended;
  std::vector<std::shared_ptr<Stream>> streams;
  const int64_t start = now_us();
  for (Request& request : requests) {
    streams.push_back(std::make_shared<Stream>(ended));
    request.sink = streams.back();
    if (instance_.engine->submit(std::move(request)) != SubmitResult::accepted) {
      return Error{"the engine refused a request of the benchmark; fewer or shorter ones fit"};
    }
  }
  for (int i = 0; i < count; ++i) ended.receive();
  StreamTimes times;
  times.seconds = seconds_since(start);
  for (const auto& stream : streams) {
    if (stream->times_us.empty() || !stream->error.empty())
      return Error{"a request of the benchmark failed: " + stream->error};
    times.output_tokens += static_cast<int64_t>(stream->times_us.size());
    times.first_token_seconds =
        std::max(times.first_token_seconds, static_cast<double>(stream->times_us.front() - start) * 1e-6);
  }
  times.step_seconds = step_seconds(streams);
  return times;
}

Result<LoadReport> Streams::load(int concurrency, int count, int prompt, int output) {
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) requests.push_back(request_of(prompt, output));
  Channel<int> ended;
  std::vector<std::shared_ptr<Stream>> streams;
  std::vector<int64_t> starts;
  const auto submit_next = [&]() -> Status {
    Request& request = requests[streams.size()];
    request.sink = streams.emplace_back(std::make_shared<Stream>(ended));
    starts.push_back(now_us());
    if (instance_.engine->submit(std::move(request)) == SubmitResult::accepted) return {};
    return Error{"the engine refused a request of the benchmark; fewer or shorter ones fit"};
  };
  const int64_t begin = now_us();
  for (int i = 0; i < std::min(concurrency, count); ++i) TRY(submit_next());
  for (int done = 0; done < count; ++done) {
    ended.receive();
    if (static_cast<int>(streams.size()) < count) TRY(submit_next());
  }
  LoadFacts facts;
  facts.seconds = seconds_since(begin);
  std::vector<LoadOutcome> outcomes;
  for (size_t i = 0; i < streams.size(); ++i) outcomes.push_back(outcome_of(*streams[i], begin, starts[i], prompt));
  return make_report(std::move(facts), outcomes);
}

Result<GapTimes> Streams::mixed(int count, int long_prompt, int seconds) {
  Channel<int> ended;
  std::vector<std::shared_ptr<Stream>> streams;
  const auto submit = [&](int prompt, int output) -> Status {
    streams.push_back(std::make_shared<Stream>(ended));
    Request request = request_of(prompt, output);
    request.sink = streams.back();
    streams.back()->id = request.id;
    if (instance_.engine->submit(std::move(request)) == SubmitResult::accepted) return {};
    return Error{"the engine refused a request of the benchmark; fewer or shorter ones fit"};
  };
  constexpr int most_tokens = 1 << 16;  // more than a stream gets done; it is cancelled
  const int room = instance_.memory.max_model_len - 128;
  for (int i = 0; i < count; ++i) TRY(submit(128, std::min(most_tokens, room)));
  for (int second = 0; second < seconds; ++second) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    TRY(submit(long_prompt, 1));
  }
  std::this_thread::sleep_for(std::chrono::seconds(1));
  for (const auto& stream : streams) instance_.engine->cancel(stream->id);
  for (size_t i = 0; i < streams.size(); ++i) ended.receive();
  std::vector<double> gaps;
  for (int i = 0; i < count; ++i) {
    const std::vector<int64_t>& times = streams[static_cast<size_t>(i)]->times_us;
    for (size_t t = 1; t < times.size(); ++t) gaps.push_back(static_cast<double>(times[t] - times[t - 1]) * 1e-6);
  }
  if (gaps.size() < 100) return Error{"the streams of the benchmark gave too few tokens"};
  std::sort(gaps.begin(), gaps.end());
  return GapTimes{gaps[gaps.size() / 2], gaps[gaps.size() * 99 / 100]};
}

Result<double> Streams::hit(int prompt) {
  Request request;
  request.prompt = random_tokens(prompt);
  request.max_tokens = 1;
  request.sampling.temperature = 0.0F;
  double seconds = 0.0;
  for (int turn = 0; turn < 2; ++turn) {
    ASSIGN_OR_RETURN(const auto pending, Pending::submit(*instance_.engine, request));
    const Reply answer = pending->wait();
    if (answer.reason == FinishReason::error) return Error{answer.error};
    seconds = static_cast<double>(answer.times.first_token_us) * 1e-6;
  }
  return seconds;
}

}  // namespace quern
