// The load generator against a scripted server on the loopback interface.
#include "apps/bench_url.h"

#include <algorithm>
#include <atomic>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <set>
#include <sstream>

#include "apps/load/report.h"
#include "apps/load/requests.h"
#include "apps/load/run.h"
#include "apps/load/tokens.h"
#include "base/file.h"
#include "base/guarded.h"
#include "base/testing.h"
#include "net/http_server.h"

namespace quern {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;
using ::testing::SizeIs;
using State = LoadOutcome::State;

LoadFacts facts_of(double seconds) {
  LoadFacts facts;
  facts.seconds = seconds;
  facts.rate = std::numeric_limits<double>::infinity();
  facts.metrics = {"ttft", "tpot", "itl", "e2el"};
  return facts;
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

TEST(AnswerMeter, TakesChunkSizesFromUsageThatComesWithThem) {
  const auto chunk = [](const char* text, int tokens) {
    return fmt::format(
        "data: {{\"choices\":[{{\"text\":\"{}\"}}],\"usage\":{{\"prompt_tokens\":7,\"completion_tokens\":{},"
        "\"prompt_tokens_details\":{{\"cached_tokens\":5}}}}}}\n\n",
        text, tokens);
  };
  LoadOutcome each;
  AnswerMeter meter(each, 0.0);
  meter.take(chunk("abc", 1) + chunk("de", 4) + chunk("", 4) + usage_chunk(7, 4), 1.0);
  meter.finish();

  LoadOutcome only_at_end;
  AnswerMeter other(only_at_end, 0.0);
  other.take(chat_chunk("abc") + chat_chunk("de") + usage_chunk(7, 4), 1.0);
  other.finish();

  EXPECT_THAT(each.chunk_tokens, ElementsAre(1, 3, 0));
  EXPECT_THAT(each.chunk_bytes, ElementsAre(3, 2, 0));
  EXPECT_EQ(each.cached_tokens, 5);
  EXPECT_THAT(only_at_end.chunk_tokens, SizeIs(0));
  EXPECT_THAT(only_at_end.chunk_bytes, ElementsAre(3, 2));
  EXPECT_FALSE(only_at_end.cached_tokens);
}

TEST(AnswerMeter, DoesNotTakeWhatIsNoAnswerForOne) {
  const auto outcome_of = [](std::string_view text) {
    LoadOutcome outcome;
    AnswerMeter meter(outcome, 0.0);
    meter.take(text, 1.0);
    meter.finish();
    return outcome;
  };
  const LoadOutcome cut_off = outcome_of("data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}\n\n");
  const LoadOutcome odd = outcome_of("data: {\"choices\":[5]}\n\ndata: [DONE]\n\n");
  const LoadOutcome negative =
      outcome_of("data: {\"choices\":[{\"text\":\"a\"}],\"usage\":{\"completion_tokens\":-5}}\n\ndata: [DONE]\n\n");
  const LoadOutcome rude = outcome_of("data: {\"error\":\"\\u001b[2J\\nred\"}\n\n");

  EXPECT_THAT(cut_off.error, HasSubstr("cut off"));
  EXPECT_THAT(odd.error, HasSubstr("no object"));
  EXPECT_EQ(negative.error, "");
  EXPECT_FALSE(negative.counted_by_server);
  EXPECT_EQ(negative.output_tokens, 1);
  EXPECT_EQ(rude.error, "error in the stream:  [2J red");
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
  EXPECT_THAT(server->connections(), AllOf(Ge(1), Le(4)));  // who comes late may find nothing left to ask
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

TEST(LoadRun, CountsByATokenizerWhatTheServerDoesNot) {
  const auto tokens = LoadTokens::open(std::string(QUERN_SOURCE_DIR) + "/src/text/testdata/qwen2.tokenizer.json");
  ASSERT_TRUE(tokens.ok()) << tokens.error().message;
  bool with_usage = false;
  const auto server =
      serve([&](const HttpRequest&, const std::shared_ptr<Responder>& responder) { stream(responder, 3, with_usage); });
  const LoadTarget target = target_at(*server);
  const auto prompts = small_prompts(2);
  const int counted = tokens->count("ab ab ab ");

  for (const bool usage : {false, true}) {
    with_usage = usage;
    LoadRun run(target, prompts, 1);
    run.run(std::vector<double>(2, 0.0));
    run.count(*tokens);
    const LoadReport report = make_report(facts_of(run.seconds()), run.outcomes());

    EXPECT_EQ(report.output_tokens, usage ? 2 * 6 : 2 * counted);
    EXPECT_EQ(report.client_tokens, 2 * counted);
    EXPECT_EQ(report.not_counted, 0);
    EXPECT_TRUE(report.chunks.in_tokens);
  }
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
    if (request.target == "/version") return responder->send({200, {}, R"({"version":"7.8"})"});
    if (request.target == "/reset_prefix_cache") {
      return responder->send({resets_ ? 200 : 404, {}, R"({"error":{"message":"no such route"}})"});
    }
    if (refuse_) return responder->send({400, {}, R"({"error":{"message":"prompt too long"}})"});
    answer(request, responder);
  }

  std::atomic<int> calls_ = 0;
  std::atomic<int> scrapes_ = 0;
  bool refuse_ = false;
  bool resets_ = true;
  Guarded<std::vector<HttpRequest>> seen_;
  std::string out_;
  std::string err_;
  std::unique_ptr<HttpServer> server_ = serve(
      [this](const HttpRequest& request, const std::shared_ptr<Responder>& responder) { handle(request, responder); });
};

TEST_F(BenchUrl, PrintsAndSavesAReport) {
  const testing::Folder directory;

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
                            directory.path(),
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
  const Json saved = *Json::parse(*read_file(directory.path() + "/bench_url.json"));
  EXPECT_EQ(saved.string("model_id"), "tiny");
  EXPECT_EQ(saved.string("host"), "a");
  EXPECT_EQ(saved.integer("completed"), 8);
  EXPECT_EQ(saved.integer("num_warmups"), 2);
  EXPECT_GT(*saved.number("warmup_duration"), 0.0);
  EXPECT_EQ(saved.string("server_version"), "7.8");
  EXPECT_EQ(saved.number("server_mean_ttft_ms"), 50.0);
  EXPECT_TRUE(saved.find("client")->has("cpu"));
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

TEST_F(BenchUrl, SendsTheBodiesOfVllm) {
  const int status = bench({"--backend",    "vllm",      "--num-prompts",       "3",          "--model",    "m",
                            "--output-len", "2",         "--request-id-prefix", "r-",         "--header",   "x-a=1",
                            "x-b: 2",       "--goodput", "ttft:90000",          "tpot:90000", "--metadata", "a=1",
                            "b=2",          "--json"});

  EXPECT_EQ(status, 0) << err_;
  const Json json = *Json::parse(out_);
  EXPECT_EQ(json.string("backend"), "vllm");
  EXPECT_EQ(json.string("endpoint_type"), "vllm");
  EXPECT_EQ(json.string("b"), "2");
  EXPECT_GT(*json.number("request_goodput"), 0.0);
  seen_.with([](const auto& seen) {
    std::set<std::string> ids;
    for (const HttpRequest& request : seen) {
      EXPECT_EQ(request.header("x-b"), "2");
      if (request.method != "POST") continue;
      EXPECT_THAT(request.body, HasSubstr("\"repetition_penalty\":1.0,\"logprobs\":null"));
      ids.insert(std::string(request.header("x-request-id")));
    }
    EXPECT_THAT(ids, ElementsAre("", "r-0", "r-1", "r-2"));
  });

  EXPECT_EQ(bench({"--num-prompts", "1", "--model", "m", "--logprobs", "3", "--json"}), 0);
  seen_.with([](const auto& seen) {
    const auto last = std::find_if(seen.rbegin(), seen.rend(), [](const auto& one) { return one.method == "POST"; });
    EXPECT_THAT(last->body, HasSubstr("\"logprobs\":3"));
    EXPECT_THAT(last->body, Not(HasSubstr("repetition_penalty")));
  });
}

TEST_F(BenchUrl, BringsThePrefixCacheToTheStateThatIsAskedFor) {
  const auto targets = [&] {
    return seen_.with([](auto& seen) {
      std::vector<std::string> posts;
      for (const HttpRequest& request : seen) {
        if (request.method == "POST")
          posts.push_back(request.target == "/v1/completions" ? request.body : request.target);
      }
      seen.clear();
      return posts;
    });
  };
  const std::vector<std::string> flags = {"--num-prompts",     "2", "--model",       "m", "--output-len", "3", "--json",
                                          "--max-concurrency", "1", "--prefix-cache"};
  const auto with = [&](const char* state) {
    std::vector<std::string> words = flags;
    words.emplace_back(state);
    return words;
  };

  EXPECT_EQ(bench(with("cold")), 0) << err_;
  EXPECT_EQ(Json::parse(out_)->string("prefix_cache"), "cold");
  EXPECT_EQ(targets()[1], "/reset_prefix_cache");  // after the check
  EXPECT_EQ(bench(with("warm")), 0) << err_;
  const std::vector<std::string> sent = targets();
  ASSERT_THAT(sent, SizeIs(1 + 2 + 2));
  for (const size_t i : {1U, 2U}) {
    EXPECT_THAT(sent[i], HasSubstr("\"max_tokens\":1"));
    EXPECT_EQ(Json::parse(sent[i])->find("prompt")->dump(), Json::parse(sent[i + 2])->find("prompt")->dump());
  }
  resets_ = false;
  EXPECT_EQ(bench(with("cold")), 1);
  EXPECT_THAT(err_, HasSubstr("HTTP 404: no such route; start the server with --enable-sleep-mode"));
}

TEST_F(BenchUrl, SweepsOverConcurrencies) {
  EXPECT_EQ(bench({"--sweep", "3,1", "--output-len", "2", "--model", "m", "--goodput", "ttft:60000", "--price-per-hour",
                   "3.6", "--json"}),
            0);
  std::vector<Json> points;
  std::istringstream lines(out_);
  for (std::string line; std::getline(lines, line);) points.push_back(*Json::parse(line));
  ASSERT_THAT(points, SizeIs(2));
  EXPECT_EQ(points[0].integer("concurrency"), 1);
  EXPECT_EQ(points[0].integer("completed"), 8);
  EXPECT_EQ(points[1].integer("completed"), 12);
  EXPECT_GT(*points[1].number("price_per_million_output_tokens"), *points[1].number("price_per_million_tokens"));
  seen_.with([](const auto& seen) {
    std::set<std::string> bodies;
    int posts = 0;
    for (const HttpRequest& request : seen) {
      if (request.method != "POST") continue;
      ++posts;
      bodies.insert(request.body);
    }
    EXPECT_EQ(posts, 1 + 8 + 12);  // a check and the measured ones, all different
    EXPECT_THAT(bodies, SizeIs(21));
  });

  EXPECT_EQ(bench({"--sweep", "1,2", "--output-len", "2", "--model", "m"}), 0);
  EXPECT_THAT(out_, HasSubstr("nine tenths of the most tokens: concurrency "));
}

TEST_F(BenchUrl, RefusesWrongFlags) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--request-rate", "0"}, "--request-rate 0: say a number from 1e-06, or inf"},
      {{"--burstiness", "-1"}, "--burstiness"},
      {{"--random-range-ratio", "1"}, "--random-range-ratio"},
      {{"--goodput", "ttft"}, "--goodput ttft"},
      {{"--extra-body", "[]"}, "--extra-body must be a JSON object"},
      {{"--header", "x"}, "--header x"},
      {{"--percentile-metrics", "abc"}, "abc"},
      {{"--top-p", "much"}, "--top-p much: say a number"},
      {{"--sweep", "0"}, "--sweep 0"},
      {{"--ramp-up-strategy", "linear"}, "--ramp-up-strategy needs --ramp-up-start-rps"},
      {{"--ramp-up-end-rps", "2"}, "need --ramp-up-strategy"},
      {{"--ramp-up-strategy", "linear", "--ramp-up-start-rps", "1", "--ramp-up-end-rps", "2", "--request-rate", "1"},
       "leave --request-rate out"},
      {{"--sweep", "1", "--prefix-cache", "cold"}, "--prefix-cache is for one run"},
      {{"--prefix-cache", "hot"}, "--prefix-cache hot is unknown"},
      {{"--tokenizer", "no/tokenizer.json"}, "no: there is no tokenizer.json"},
      {{"--sweep", "1", "--save-result"}, "--save-result"},
      {{"--sweep", "1", "--price-per-hour", "-1"}, "--price-per-hour"},
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
