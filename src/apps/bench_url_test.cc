// The load generator: its statistics, its arrivals, and runs against a scripted server on the loopback interface.
#include "apps/bench_url.h"

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <set>

#include "apps/load/report.h"
#include "apps/load/requests.h"
#include "apps/load/run.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/guarded.h"
#include "net/http_server.h"

namespace quern {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::DoubleEq;
using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::SizeIs;
using State = LoadOutcome::State;

LoadOutcome answered(double start_s, double ttft_s, std::vector<double> itls_s, int tokens) {
  LoadOutcome outcome;
  outcome.state = State::done;
  outcome.start_s = start_s;
  outcome.ttft_s = outcome.first_text_s = ttft_s;
  outcome.latency_s = std::accumulate(itls_s.begin(), itls_s.end(), ttft_s);
  outcome.itls_s = std::move(itls_s);
  outcome.input_tokens = 10;
  outcome.output_tokens = tokens;
  outcome.counted_by_server = true;
  return outcome;
}

LoadOutcome refused(std::string error) {
  LoadOutcome outcome;
  outcome.state = State::failed;
  outcome.error = std::move(error);
  return outcome;
}

LoadFacts facts_of(double seconds) {
  LoadFacts facts;
  facts.seconds = seconds;
  facts.rate = std::numeric_limits<double>::infinity();
  facts.metrics = {"ttft", "tpot", "itl", "e2el"};
  return facts;
}

// The expected values are numpy.percentile's, numpy.mean's and numpy.std's.
TEST(LoadStatistics, AreThoseOfNumpy) {
  const double percents[] = {0, 1, 25, 90, 95, 99, 99.9, 100};

  const LoadSpread spread = spread_of({7.25, 1.5, 3.0, 12.0, 0.75, 9.5, 4.0}, percents);

  const double expected[] = {0.75, 0.795, 2.25, 10.5, 11.25, 11.85, 11.985, 12.0};
  for (size_t i = 0; i < std::size(percents); ++i) {
    EXPECT_NEAR(spread.percentiles[i].second, expected[i], 1e-12) << percents[i];
  }
  EXPECT_NEAR(spread.mean, 5.428571428571429, 1e-12);
  EXPECT_NEAR(spread.deviation, 3.934087037207811, 1e-12);
  EXPECT_EQ(spread.median, 4.0);
  EXPECT_EQ(percentile(std::vector<double>{10.0, 20.0, 40.0, 80.0}, 50.0), 30.0);
}

TEST(LoadStatistics, OfNothingAreZero) {
  const double percents[] = {99};

  const LoadSpread spread = spread_of({}, percents);

  EXPECT_EQ(spread.mean, 0.0);
  EXPECT_EQ(spread.percentiles[0].second, 0.0);
}

TEST(LoadReport, CountsAndTimesRequests) {
  const LoadOutcome outcomes[] = {answered(0.0, 0.1, {0.02, 0.02}, 3),
                                  answered(0.05, 0.3, {0.5, 0.5}, 5),
                                  answered(0.7, 0.2, {}, 1),
                                  refused("HTTP 500: no"),
                                  refused("HTTP 500: no"),
                                  refused("no answer")};

  const LoadReport report = make_report(facts_of(2.0), outcomes);

  EXPECT_EQ(report.completed, 3);
  EXPECT_EQ(report.failed, 3);
  EXPECT_EQ(report.input_tokens, 30);
  EXPECT_EQ(report.output_tokens, 9);
  EXPECT_THAT(report.errors, ElementsAre(std::pair{"HTTP 500: no", 2}, std::pair{"no answer", 1}));
  EXPECT_NEAR(report.ttft.mean, 200.0, 1e-9);
  EXPECT_NEAR(report.tpot.mean, (20.0 + 250.0) / 2, 1e-9);  // an answer of one token has none
  EXPECT_NEAR(report.itl.mean, 260.0, 1e-9);
  EXPECT_NEAR(report.e2el.median, 200.0, 1e-9);
  EXPECT_EQ(report.peak_concurrency, 2);
  // Seconds 0 and 1: 3 + 2 * 5/3 + 1 tokens and 5/3.
  EXPECT_NEAR(report.peak_tokens_per_s, 4.0 + 2 * 5.0 / 3.0, 1e-9);
  EXPECT_NEAR(report.tokens_per_chunk, 9.0 / 7.0, 1e-9);
}

TEST(LoadReport, CountsGoodRequests) {
  LoadFacts facts = facts_of(2.0);
  facts.goodput = *parse_goodput("ttft:150,tpot:100");
  const LoadOutcome outcomes[] = {answered(0, 0.1, {0.02}, 2), answered(0, 0.2, {0.02}, 2), answered(0, 0.1, {0.3}, 2),
                                  answered(0, 0.1, {}, 1), refused("x")};

  const LoadReport report = make_report(facts, outcomes);

  EXPECT_EQ(report.good, 2);
  EXPECT_EQ(report_json(report).number("request_goodput"), 1.0);
  EXPECT_THAT(report_table(report), HasSubstr("Request goodput (req/s):                 1.00"));
}

TEST(LoadReport, HasTheKeysAndRowsOfVllm) {
  const LoadOutcome outcomes[] = {answered(0.0, 0.1, {0.02, 0.02}, 3), refused("HTTP 500: no")};
  LoadFacts facts = facts_of(2.0);
  facts.percents = {50, 99.9};
  const LoadReport report = make_report(facts, outcomes);

  const Json json = report_json(report, outcomes);
  const std::string table = report_table(report);

  for (const char* key : {"date",
                          "endpoint_type",
                          "backend",
                          "label",
                          "model_id",
                          "tokenizer_id",
                          "num_prompts",
                          "request_rate",
                          "burstiness",
                          "max_concurrency",
                          "duration",
                          "completed",
                          "failed",
                          "total_input_tokens",
                          "total_output_tokens",
                          "request_throughput",
                          "request_goodput",
                          "output_throughput",
                          "total_token_throughput",
                          "max_output_tokens_per_s",
                          "max_concurrent_requests",
                          "mean_ttft_ms",
                          "median_tpot_ms",
                          "std_itl_ms",
                          "p50_e2el_ms",
                          "p99.9_ttft_ms",
                          "input_lens",
                          "output_lens",
                          "ttfts",
                          "itls",
                          "start_times",
                          "generated_texts",
                          "errors"}) {
    EXPECT_TRUE(json.has(key)) << key;
  }
  EXPECT_EQ(json.string("request_rate"), "inf");
  EXPECT_EQ(json.number("output_throughput"), 1.5);
  EXPECT_EQ(json.find("errors")->items()[1], Json("HTTP 500: no"));
  EXPECT_FALSE(report_json(report).has("itls"));
  EXPECT_THAT(table, HasSubstr("============ Serving Benchmark Result ============\n"
                               "Successful requests:                     1         \n"
                               "Failed requests:                         1         \n"
                               "Benchmark duration (s):                  2.00      \n"));
  EXPECT_THAT(table, HasSubstr("---------------Time to First Token----------------\n"
                               "Mean TTFT (ms):                          100.00    \n"));
  EXPECT_THAT(table, HasSubstr("P99.9 E2EL (ms):                         140.00    \n"));
  EXPECT_THAT(table, HasSubstr("1 failed: HTTP 500: no\n"));
}

TEST(LoadReport, RefusesBadLimitsAndPercentiles) {
  EXPECT_THAT(parse_goodput("ttft:1,itl:3").error().message, HasSubstr("itl:3"));
  EXPECT_FALSE(parse_goodput("ttft").ok());
  EXPECT_FALSE(parse_goodput("ttft:fast").ok());
  EXPECT_FALSE(parse_percentiles("50,101").ok());
  EXPECT_FALSE(parse_percentiles("nan").ok());
  EXPECT_THAT(*parse_percentiles("50,99.9"), ElementsAre(50.0, 99.9));
}

/// Standard deviation of the gaps over their mean.
double variation(const std::vector<double>& times) {
  std::vector<double> gaps(times.size());
  std::adjacent_difference(times.begin(), times.end(), gaps.begin());
  const LoadSpread spread = spread_of(gaps, {});
  return spread.deviation / spread.mean;
}

TEST(Arrivals, HaveTheirRateAndBurstiness) {
  constexpr int count = 20'000;
  ArrivalOptions options;
  options.rate = 50.0;
  for (const double burstiness : {0.25, 1.0, 4.0}) {
    options.burstiness = burstiness;

    const std::vector<double> times = arrival_times(options, count, 7);

    EXPECT_NEAR(times.back(), count / options.rate, 1e-6);
    EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
    EXPECT_NEAR(variation(times), 1.0 / std::sqrt(burstiness), 0.05 / std::sqrt(burstiness));
  }
  EXPECT_NE(arrival_times(options, 10, 1), arrival_times(options, 10, 2));
  EXPECT_EQ(arrival_times(options, 10, 1), arrival_times(options, 10, 1));
}

TEST(Arrivals, AreEvenOrAllAtOnce) {
  ArrivalOptions options;
  EXPECT_THAT(arrival_times(options, 3, 1), Each(0.0));

  options.rate = 4.0;
  options.burstiness = std::numeric_limits<double>::infinity();
  EXPECT_THAT(arrival_times(options, 3, 1), ElementsAre(DoubleEq(0.25), DoubleEq(0.5), DoubleEq(0.75)));
}

TEST(Arrivals, RampUp) {
  ArrivalOptions options;
  options.burstiness = std::numeric_limits<double>::infinity();
  options.ramp_start = 1.0;
  options.ramp_end = 4.0;

  options.ramp = "linear";
  EXPECT_THAT(arrival_times(options, 3, 1), ElementsAre(DoubleEq(1.0), DoubleEq(1.4), DoubleEq(1.65)));
  options.ramp = "exponential";
  EXPECT_THAT(arrival_times(options, 3, 1), ElementsAre(DoubleEq(1.0), DoubleEq(1.5), DoubleEq(1.75)));
}

TEST(LoadPrompts, AreSeededRandomIds) {
  PromptOptions options;
  options.input_tokens = 40;
  options.output_tokens = 20;
  options.range_ratio = 0.5;
  options.prefix_tokens = 5;
  options.vocabulary = 64;

  const auto prompts = *make_prompts(options, 200, 3);

  ASSERT_THAT(prompts, SizeIs(200));
  std::vector<int> lengths;
  for (const LoadPrompt& prompt : prompts) {
    EXPECT_THAT(prompt.ids, Each(AllOf(Ge(32), Lt(64))));
    EXPECT_TRUE(std::equal(prompt.ids.begin(), prompt.ids.begin() + 5, prompts[0].ids.begin()));
    EXPECT_EQ(prompt.input_tokens, static_cast<int>(prompt.ids.size()));
    EXPECT_TRUE(prompt.output_tokens >= 10 && prompt.output_tokens <= 30);
    lengths.push_back(prompt.input_tokens);
  }
  EXPECT_EQ(*std::min_element(lengths.begin(), lengths.end()), 25);
  EXPECT_EQ(*std::max_element(lengths.begin(), lengths.end()), 65);
  EXPECT_EQ((*make_prompts(options, 200, 3))[199].ids, prompts[199].ids);
  EXPECT_NE((*make_prompts(options, 200, 4))[199].ids, prompts[199].ids);
}

std::string written(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + "bench_url_" + name;
  std::ofstream(path) << text;
  return path;
}

TEST(LoadPrompts, ComeFromJsonLines) {
  PromptOptions options;
  options.dataset = "custom";
  options.path =
      written("lines", "{\"prompt\":\"a b\",\"output_len\":7}\n\n{\"prompt\":[1,2,3],\"output_tokens\":9}\n");

  const auto prompts = *make_prompts(options, 3, 1);

  EXPECT_EQ(prompts[0].text, "a b");
  EXPECT_EQ(prompts[0].output_tokens, 7);
  EXPECT_THAT(prompts[1].ids, ElementsAre(1, 2, 3));
  EXPECT_EQ(prompts[1].output_tokens, 9);
  EXPECT_EQ(prompts[2].text, "a b");
}

TEST(LoadPrompts, SayWhereAFileIsWrong) {
  PromptOptions options;
  options.dataset = "custom";
  options.path = written("wrong", "{\"prompt\":\"a\"}\n{\"question\":\"b\"}\n");

  EXPECT_THAT(make_prompts(options, 1, 1).error().message, HasSubstr("wrong:2: there is no \"prompt\""));
  options.path = written("empty", "\n");
  EXPECT_FALSE(make_prompts(options, 1, 1).ok());
  options.dataset = "sonnet";
  EXPECT_THAT(make_prompts(options, 1, 1).error().message, HasSubstr("sonnet"));
}

TEST(LoadPrompts, ComeFromConversations) {
  const std::string words(80, 'w');
  PromptOptions options;
  options.dataset = "sharegpt";
  options.path = written("talks", fmt::format(R"([{{"conversations":[{{"value":"hi"}},{{"value":"{0}"}}]}},)"
                                              R"({{"conversations":[{{"value":"{0}!"}},{{"value":"{0}"}}]}},{{}}])",
                                              words));

  const auto prompts = *make_prompts(options, 2, 1);

  EXPECT_EQ(prompts[0].text, words + "!");  // "hi" is too short
  EXPECT_EQ(prompts[0].output_tokens, 20);
  EXPECT_EQ(prompts[1].text, words + "!");
}

TEST(LoadTarget, MakesBodies) {
  LoadTarget target;
  target.prefix = "/api";
  target.fields = Json::Object{{"model", "m"}, {"temperature", 0.0}};
  target.extra = Json::Object{{"temperature", 0.5}, {"seed", 1}};
  LoadPrompt prompt;
  prompt.ids = {5, 6};
  prompt.output_tokens = 4;

  const HttpRequest completion = target.post(prompt);
  target.endpoint = "/v1/chat/completions";
  prompt.ids.clear();
  prompt.text = "say \"a\"";
  const HttpRequest chat = target.post(prompt);

  EXPECT_EQ(completion.target, "/api/v1/completions");
  EXPECT_EQ(completion.body, R"({"model":"m","temperature":0.5,"prompt":[5,6],"max_tokens":4,"seed":1})");
  EXPECT_EQ(chat.body, R"({"model":"m","temperature":0.5,"messages":[{"role":"user","content":"say \"a\""}],)"
                       R"("max_completion_tokens":4,"seed":1})");
}

constexpr const char* kRoleChunk = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";

std::string chat_chunk(const std::string& text) {
  return fmt::format("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}],\"usage\":null}}\n\n", text);
}

std::string usage_chunk(int prompt, int completion) {
  return fmt::format(
      "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{},\"completion_tokens\":{}}}}}\n\ndata: [DONE]\n\n",
      prompt, completion);
}

TEST(AnswerMeter, TellsFirstChunkFromFirstText) {
  LoadOutcome outcome;
  AnswerMeter meter(outcome, 1.0);

  meter.take(": waiting\n\n", 1.1);
  meter.take(kRoleChunk, 1.25);
  meter.take(chat_chunk("Hel"), 1.5);
  meter.take(chat_chunk("lo"), 2.0);
  meter.take(usage_chunk(11, 6), 9.0);
  meter.finish();

  EXPECT_EQ(outcome.state, State::done);
  EXPECT_EQ(outcome.ttft_s, 0.25);
  EXPECT_EQ(outcome.first_text_s, 0.5);
  EXPECT_THAT(outcome.itls_s, ElementsAre(0.25, 0.5));
  EXPECT_EQ(outcome.latency_s, 1.0);
  EXPECT_EQ(outcome.tpot_s(), 0.75 / 5);
  EXPECT_EQ(outcome.text, "Hello");
  EXPECT_EQ(outcome.input_tokens, 11);
  EXPECT_EQ(outcome.output_tokens, 6);
}

TEST(AnswerMeter, TakesAnEventWhenItsLastByteComes) {
  LoadOutcome outcome;
  AnswerMeter meter(outcome, 0.0);

  double now = 0.0;
  for (const char c : std::string("data: {\"choices\":[{\"text\":\"a\"}]}\n\n")) meter.take({&c, 1}, now += 1.0);
  meter.finish();

  EXPECT_EQ(outcome.ttft_s, now);
  EXPECT_EQ(outcome.output_tokens, 1);  // without usage: chunks with text
  EXPECT_FALSE(outcome.counted_by_server);
}

TEST(AnswerMeter, SeesErrorsInTheStream) {
  LoadOutcome outcome;
  AnswerMeter meter(outcome, 0.0);
  meter.take(chat_chunk("a") + "data: {\"error\":{\"message\":\"no memory\"}}\n\n", 1.0);
  meter.finish();

  LoadOutcome nothing;
  AnswerMeter(nothing, 0.0).finish();

  EXPECT_EQ(outcome.state, State::failed);
  EXPECT_EQ(outcome.error, "error in the stream: no memory");
  EXPECT_EQ(nothing.state, State::failed);
  EXPECT_EQ(nothing.error, "the answer has no chunk with choices");
}

std::unique_ptr<HttpServer> serve(HttpServer::Handler handler) {
  auto server = HttpServer::start({}, std::move(handler));
  EXPECT_TRUE(server.ok());
  return std::move(*server);
}

/// Streams `chunks` completion chunks, each with two tokens as the usage counts.
void stream(const std::shared_ptr<Responder>& responder, int64_t chunks, bool with_usage = true) {
  responder->begin_stream(200, {{"Content-Type", "text/event-stream"}});
  for (int64_t i = 0; i < chunks; ++i) responder->write("data: {\"choices\":[{\"text\":\"ab \"}]}\n\n");
  responder->write(with_usage ? usage_chunk(9, static_cast<int>(2 * chunks)) : "data: [DONE]\n\n");
  responder->end();
}

/// The answer that a request's max_tokens asks for.
void answer(const HttpRequest& request, const std::shared_ptr<Responder>& responder) {
  stream(responder, Json::parse(request.body)->integer("max_tokens").value_or(0));
}

LoadTarget target_at(const HttpServer& server) {
  LoadTarget target;
  target.host = "127.0.0.1";
  target.port = server.port();
  return target;
}

std::vector<LoadPrompt> small_prompts(int count) {
  PromptOptions options;
  options.input_tokens = 4;
  options.output_tokens = 3;
  return *make_prompts(options, count, 1);
}

TEST(LoadRun, MeasuresStreamedAnswers) {
  const auto server = serve(answer);
  const LoadTarget target = target_at(*server);
  const auto prompts = small_prompts(20);

  LoadRun run(target, prompts, 4);
  run.run(std::vector<double>(20, 0.0));

  ASSERT_THAT(run.outcomes(), SizeIs(20));
  for (const LoadOutcome& outcome : run.outcomes()) {
    EXPECT_EQ(outcome.state, State::done) << outcome.error;
    EXPECT_GT(outcome.ttft_s, 0.0);
    EXPECT_LE(outcome.ttft_s, outcome.latency_s);
    EXPECT_LE(outcome.start_s + outcome.latency_s, run.seconds());
    EXPECT_THAT(outcome.itls_s, AllOf(SizeIs(2), Each(Ge(0.0))));
    EXPECT_EQ(outcome.output_tokens, 6);
    EXPECT_EQ(outcome.input_tokens, 9);
    EXPECT_EQ(outcome.text, "ab ab ab ");
  }
  EXPECT_EQ(server->connections(), 4);
  EXPECT_LE(make_report(facts_of(run.seconds()), run.outcomes()).peak_concurrency, 4);
}

TEST(LoadRun, DoesNotWaitForAnswersInTheOpenLoop) {
  constexpr size_t count = 30;
  Guarded<std::vector<std::shared_ptr<Responder>>> waiting;
  const auto server = serve([&](const HttpRequest&, const std::shared_ptr<Responder>& responder) {
    waiting.with([&](auto& all) {
      all.push_back(responder);
      if (all.size() < count) return;
      for (const auto& one : all) stream(one, 1);
    });
  });
  const LoadTarget target = target_at(*server);
  const auto prompts = small_prompts(count);
  ArrivalOptions arrivals;
  arrivals.rate = 1000.0;
  const auto times = arrival_times(arrivals, count, 1);

  LoadRun run(target, prompts, 0);
  run.run(times);

  for (size_t i = 0; i < count; ++i) {
    EXPECT_EQ(run.outcomes()[i].state, State::done) << run.outcomes()[i].error;
    EXPECT_GE(run.outcomes()[i].start_s, times[i] - 1e-5);
  }
  EXPECT_EQ(run.waited(), 0);
  EXPECT_GT(run.late_p99_s(times), 0.0);
}

TEST(LoadRun, CountsFailures) {
  std::atomic<int> calls = 0;
  const auto server = serve([&](const HttpRequest&, const std::shared_ptr<Responder>& responder) {
    const int call = calls++ % 3;
    if (call == 0) responder->send({429, {}, R"({"error":{"message":"too many requests"}})"});
    if (call == 1) responder->send({200, {}, "hello"});
    if (call == 2) stream(responder, 2, false);
  });
  const LoadTarget target = target_at(*server);
  const auto prompts = small_prompts(9);

  LoadRun run(target, prompts, 1);
  run.run(std::vector<double>(9, 0.0));
  const LoadReport report = make_report(facts_of(run.seconds()), run.outcomes());

  EXPECT_EQ(report.completed, 3);
  EXPECT_EQ(report.failed, 6);
  EXPECT_THAT(report.errors, ElementsAre(std::pair{"HTTP 429: too many requests", 3},
                                         std::pair{"the answer has no chunk with choices", 3}));
  EXPECT_EQ(report.output_tokens, 6);
  EXPECT_EQ(report.not_counted, 3);
  EXPECT_THAT(report_table(report), HasSubstr("sent no usage for 3 requests"));
}

TEST(LoadRun, FailsWithoutAServer) {
  LoadTarget target;
  {
    const auto server = serve(answer);
    target = target_at(*server);
  }
  const auto prompts = small_prompts(3);

  LoadRun run(target, prompts, 2);
  run.run(std::vector<double>(3, 0.0));

  for (const LoadOutcome& outcome : run.outcomes()) {
    EXPECT_EQ(outcome.state, State::failed);
    EXPECT_THAT(outcome.error, HasSubstr("cannot connect"));
  }
}

TEST(LoadRun, CutsOffWhatRunsWhenStopped) {
  LoadRun* running = nullptr;
  std::atomic<int> calls = 0;
  Guarded<std::vector<std::shared_ptr<Responder>>> silent;
  const auto server = serve([&](const HttpRequest&, const std::shared_ptr<Responder>& responder) {
    const int call = ++calls;
    if (call <= 2) return stream(responder, 1);
    silent.with([&](auto& all) { all.push_back(responder); });
    if (call == 4) running->stop();
  });
  const LoadTarget target = target_at(*server);
  const auto prompts = small_prompts(50);
  std::vector<double> times(50, 0.0);
  times.back() = 3600.0;

  LoadRun run(target, prompts, 2);
  running = &run;
  run.run(times);
  LoadFacts facts = facts_of(run.seconds());
  facts.interrupted = run.stopped();
  const LoadReport report = make_report(facts, run.outcomes());

  EXPECT_EQ(report.completed, 2);
  EXPECT_EQ(report.failed, 0);
  EXPECT_EQ(report.cut, 2);
  EXPECT_THAT(report_table(report), HasSubstr("interrupted; 2 requests were cut off"));
}

/// A server that first says that it is loading.
class BenchUrl : public ::testing::Test {
 protected:
  int bench(std::vector<std::string> words) {
    words.insert(words.begin(), {"--url", fmt::format("http://127.0.0.1:{}/v1", server_->port()), "--quiet"});
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    EXPECT_TRUE(names_a_server(arguments));
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int status = bench_url_command(arguments);
    out_ = ::testing::internal::GetCapturedStdout();
    err_ = ::testing::internal::GetCapturedStderr();
    return status;
  }

  void handle(const HttpRequest& request, const std::shared_ptr<Responder>& responder) {
    seen_.with([&](auto& seen) { seen.push_back(request); });
    if (request.target == "/v1/models") {
      if (calls_++ == 0) return responder->send({503, {}, "loading"});
      return responder->send({200, {}, R"({"data":[{"id":"tiny"}]})"});
    }
    if (request.target == "/metrics") {
      const int n = ++scrapes_;  // between two scrapes: 8 more requests, 0.4 s more
      return responder->send({200,
                              {},
                              fmt::format("# HELP vllm:time_to_first_token_seconds x\n"
                                          "vllm:time_to_first_token_seconds_sum{{m=\"a\"}} {}\n"
                                          "vllm:time_to_first_token_seconds_count{{m=\"a\"}} {}\n",
                                          0.4 * n, 8 * n)});
    }
    if (refuse_) return responder->send({400, {}, R"({"error":{"message":"prompt too long"}})"});
    answer(request, responder);
  }

  std::atomic<int> calls_ = 0;
  std::atomic<int> scrapes_ = 0;
  bool refuse_ = false;
  Guarded<std::vector<HttpRequest>> seen_;
  std::string out_;
  std::string err_;
  std::unique_ptr<HttpServer> server_ = serve(
      [this](const HttpRequest& request, const std::shared_ptr<Responder>& responder) { handle(request, responder); });
};

TEST_F(BenchUrl, PrintsAndSavesAReport) {
  const std::string directory = ::testing::TempDir();

  const int status = bench({"--num-prompts",
                            "8",
                            "--num-warmups",
                            "2",
                            "--random-input-len",
                            "5",
                            "--random-output-len",
                            "3",
                            "--max-concurrency",
                            "2",
                            "--save-detailed",
                            "--result-dir",
                            directory,
                            "--result-filename",
                            "bench_url.json",
                            "--api-key",
                            "secret",
                            "--extra-body",
                            R"({"stop":null})",
                            "--metadata",
                            "host=a"});

  EXPECT_EQ(status, 0) << err_;
  EXPECT_THAT(out_, HasSubstr("Successful requests:                     8         \n"));
  EXPECT_THAT(out_, HasSubstr("Maximum request concurrency:             2         \n"));
  EXPECT_THAT(out_, HasSubstr("Total generated tokens:                  48        \n"));
  EXPECT_THAT(out_, HasSubstr("Mean TTFT by the server's metrics (ms):  50.00"));
  const Json saved = *Json::parse(*read_file(directory + "/bench_url.json"));
  EXPECT_EQ(saved.string("model_id"), "tiny");
  EXPECT_EQ(saved.string("host"), "a");
  EXPECT_EQ(saved.integer("completed"), 8);
  EXPECT_THAT(saved.find("ttfts")->items(), SizeIs(8));
  std::vector<std::string> bodies;
  seen_.with([&](const auto& seen) {
    for (const HttpRequest& request : seen) {
      EXPECT_EQ(request.header("authorization"), "Bearer secret");
      if (request.method == "POST") bodies.push_back(request.body);
    }
  });
  EXPECT_THAT(bodies, SizeIs(1 + 2 + 8));  // a check, the warm-up and the measured ones, all different
  EXPECT_THAT(bodies, Each(HasSubstr(R"("stop":null)")));
  EXPECT_EQ(std::set<std::string>(bodies.begin(), bodies.end()).size(), bodies.size());
}

TEST_F(BenchUrl, FailsWhenEveryRequestFailed) {
  refuse_ = true;

  EXPECT_EQ(bench({"--num-prompts", "4", "--model", "m", "--ready-check-timeout-sec", "0"}), 1);
  EXPECT_THAT(out_, HasSubstr("4 failed: HTTP 400: prompt too long\n"));

  EXPECT_EQ(bench({"--num-prompts", "4", "--model", "m"}), 1);  // the check says so at once
  EXPECT_THAT(err_, HasSubstr("HTTP 400: prompt too long"));
}

TEST_F(BenchUrl, PrintsJsonOfAChat) {
  const int status = bench({"--backend", "openai-chat", "--num-prompts", "2", "--model", "m", "--json",
                            "--ready-check-timeout-sec", "0", "--request-rate", "500"});

  EXPECT_EQ(status, 1);  // this server streams nothing for max_completion_tokens
  const auto json = Json::parse(out_);
  ASSERT_TRUE(json.ok()) << out_;
  EXPECT_EQ(json->string("backend"), "openai-chat");
  EXPECT_EQ(json->number("request_rate"), 500.0);
  seen_.with([](const auto& seen) {
    for (const HttpRequest& request : seen) {
      if (request.method == "POST") EXPECT_EQ(request.target, "/v1/chat/completions");
    }
  });
}

TEST_F(BenchUrl, RefusesWrongFlags) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--request-rate", "0"}, "--request-rate must be above 0"},
      {{"--burstiness", "-1"}, "--burstiness"},
      {{"--random-range-ratio", "1"}, "--random-range-ratio"},
      {{"--goodput", "ttft"}, "--goodput ttft"},
      {{"--extra-body", "[]"}, "--extra-body must be a JSON object"},
      {{"--header", "x"}, "--header x"},
      {{"--percentile-metrics", "abc"}, "abc"},
      {{"--top-p", "much"}, "top_p"},
      {{"--num-prompt", "3"}, "did you mean --num-prompts?"},
  };
  for (const auto& [words, message] : cases) {
    EXPECT_EQ(bench(words), 1) << words[0];
    EXPECT_THAT(err_, HasSubstr(message));
  }
}

TEST(BenchUrlHelp, HasAtMostSixtyFlagsAndAnExample) {
  char help[] = "--help";
  char* const arguments[] = {help};
  ::testing::internal::CaptureStdout();

  EXPECT_EQ(bench_url_command(arguments), 0);

  const std::string text = ::testing::internal::GetCapturedStdout();
  int flags = 0;
  for (size_t at = text.find("\n  --"); at != std::string::npos; at = text.find("\n  --", at + 1)) ++flags;
  EXPECT_GE(flags, 40);
  EXPECT_LE(flags, 60);
  EXPECT_THAT(text, HasSubstr("example:\n  quern bench --url"));
}

}  // namespace
}  // namespace quern
