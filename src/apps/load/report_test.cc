// The figures of a load run, and how they are shown.
#include "apps/load/report.h"

#include <array>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>

namespace quern {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
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

TEST(LoadReport, HasAHistogramOfChunkSizes) {
  LoadOutcome one = answered(0.0, 0.1, {0.1, 0.1}, 9);
  one.chunk_bytes = {4, 0, 30};
  one.chunk_tokens = {1, 0, 8};
  LoadOutcome two = answered(0.0, 0.1, {0.1}, 6);
  two.chunk_bytes = {4, 17};
  two.chunk_tokens = {1, 5};
  const LoadOutcome outcomes[] = {one, two, refused("x")};

  const LoadReport report = make_report(facts_of(1.0), outcomes);
  const Json json = report_json(report);
  two.chunk_tokens.clear();  // not known for one answer
  const Json in_bytes = report_json(make_report(facts_of(1.0), std::array{one, two}));

  EXPECT_EQ(json.string("chunk_size_unit"), "tokens");
  EXPECT_EQ(json.find("chunk_sizes")->dump(), R"({"0":1,"1":2,"5-8":2})");
  EXPECT_THAT(report_table(report), HasSubstr("Chunks of 1 tokens:                      2         \n"));
  EXPECT_EQ(in_bytes.string("chunk_size_unit"), "bytes");
  EXPECT_EQ(in_bytes.find("chunk_sizes")->dump(), R"({"0":1,"4":2,"17-32":2})");
}

TEST(LoadReport, HasTheDraftsOfTheServerUnderTheirNames) {
  LoadFacts facts = facts_of(1.0);
  EXPECT_FALSE(report_json(make_report(facts, {})).has("spec_decode_num_drafts"));
  facts.server.drafts = DraftFigures{100, 200, 150, {0.9, 0.6}};

  const LoadReport report = make_report(facts, {});
  const Json json = report_json(report);

  EXPECT_EQ(json.number("spec_decode_acceptance_rate"), 75.0);
  EXPECT_EQ(json.number("spec_decode_acceptance_length"), 2.5);
  EXPECT_EQ(json.integer("spec_decode_num_drafts"), 100);
  EXPECT_EQ(json.integer("spec_decode_draft_tokens"), 200);
  EXPECT_EQ(json.integer("spec_decode_accepted_tokens"), 150);
  EXPECT_EQ(json.find("spec_decode_per_position_acceptance_rates")->dump(), "[0.9,0.6]");
  EXPECT_THAT(report_table(report), HasSubstr("---------------Speculative Decoding---------------\n"
                                              "Acceptance rate (%):                     75.00     \n"
                                              "Acceptance length:                       2.50      \n"
                                              "Drafts:                                  100       \n"));
  EXPECT_THAT(report_table(report), HasSubstr("Per-position acceptance (%):\n"
                                              "  Position 0:                            90.00     \n"));
}

TEST(LoadReport, SaysWhatMakesItsFiguresDoubtful) {
  LoadFacts facts = facts_of(1.0);
  facts.usable_cores = 2;
  facts.cpu_cores = 1.5;
  EXPECT_THAT(report_table(make_report(facts, {})), Not(HasSubstr("note:")));
  facts.cpu_cores = 1.9;
  facts.late_p99_ms = 40.0;
  facts.waited = 3;
  facts.connections = 8;

  const std::string table = report_table(make_report(facts, {}));

  EXPECT_THAT(table, HasSubstr("note: this program used 1.9 of 2 cores: it may have been the limit\n"));
  EXPECT_THAT(table, HasSubstr("note: requests started up to 40 ms (P99) after they were due\n"));
  EXPECT_THAT(table, HasSubstr("note: 3 requests were due when all 8 connections were busy"));
}

TEST(LoadReport, SaysHowItWasMade) {
  LoadFacts facts = facts_of(1.0);
  facts.model = "m";
  facts.warmups = 3;
  facts.warmup_s = 0.5;
  facts.prefix_cache = "warm";
  facts.server_version = "1.2";
  facts.server.prefix_hit_percent = 80.0;
  facts.client = Json::Object{{"cpu", "x"}};
  LoadOutcome outcome = answered(0, 0.1, {0.1}, 10);
  outcome.cached_tokens = 8;
  outcome.client_tokens = 20;

  const LoadReport report = make_report(facts, std::array{outcome});
  const Json json = report_json(report);

  EXPECT_EQ(json.string("tokenizer_id"), "m");
  EXPECT_EQ(json.integer("num_warmups"), 3);
  EXPECT_EQ(json.number("warmup_duration"), 0.5);
  EXPECT_EQ(json.string("prefix_cache"), "warm");
  EXPECT_EQ(json.integer("cached_input_tokens"), 8);
  EXPECT_EQ(json.number("server_prefix_hit_percent"), 80.0);
  EXPECT_EQ(json.string("server_version"), "1.2");
  EXPECT_EQ(json.find("client")->string("cpu"), "x");
  EXPECT_EQ(json.integer("client_output_tokens"), 20);
  EXPECT_THAT(report_table(report), HasSubstr("the server counts 10 output tokens, the tokenizer here 20"));
}

TEST(LoadReport, RefusesBadLimitsAndPercentiles) {
  EXPECT_THAT(parse_goodput("ttft:1,itl:3").error().message, HasSubstr("itl:3"));
  EXPECT_FALSE(parse_goodput("ttft").ok());
  EXPECT_FALSE(parse_goodput("ttft:fast").ok());
  EXPECT_FALSE(parse_percentiles("50,101").ok());
  EXPECT_FALSE(parse_percentiles("nan").ok());
  EXPECT_THAT(*parse_percentiles("50,99.9"), ElementsAre(50.0, 99.9));
}

}  // namespace
}  // namespace quern
