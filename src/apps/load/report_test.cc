// The figures of a load run, and how they are shown.
#include "apps/load/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>

namespace quern {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
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

}  // namespace
}  // namespace quern
