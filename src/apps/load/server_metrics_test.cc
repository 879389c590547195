// What a server's own metrics say about a load run.
#include "apps/load/server_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quern {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

TEST(ServerMetrics, AreSummedOverTheirLabels) {
  const ServerMetrics metrics = ServerMetrics::parse(
      "# TYPE vllm:x counter\nvllm:x_total{model=\"a b\",reason=\"}\"} 2\nvllm:x_total{model=\"b\"} 3.5\n"
      "plain 7\nwrong\nvllm:nan{a=\"b\"} NaN\n");

  EXPECT_EQ(metrics.sum("vllm:x"), 5.5);
  EXPECT_EQ(metrics.sum("vllm:x_total"), 5.5);
  EXPECT_EQ(metrics.sum("plain"), 7.0);
  EXPECT_EQ(metrics.sum("vllm:nan"), 0.0);
}

TEST(ServerFigures, AreWhatWasAddedBetweenTwoScrapes) {
  const ServerMetrics before = ServerMetrics::parse(
      "vllm:time_to_first_token_seconds_sum{m=\"a\"} 1\nvllm:time_to_first_token_seconds_count{m=\"a\"} 10\n"
      "vllm:prefix_cache_queries_total{m=\"a\"} 100\nvllm:prefix_cache_hits_total{m=\"a\"} 0\n"
      "vllm:spec_decode_num_drafts_total 10\n"
      "vllm:spec_decode_num_accepted_tokens_per_pos_total{m=\"a\",position=\"0\"} 5\n");
  const ServerMetrics after = ServerMetrics::parse(
      "vllm:time_to_first_token_seconds_sum{m=\"a\"} 2\nvllm:time_to_first_token_seconds_count{m=\"a\"} 14\n"
      "vllm:prefix_cache_queries_total{m=\"a\"} 500\nvllm:prefix_cache_hits_total{m=\"a\"} 300\n"
      "vllm:spec_decode_num_drafts_total 110\nvllm:spec_decode_num_draft_tokens_total 200\n"
      "vllm:spec_decode_num_accepted_tokens_total 150\n"
      "vllm:spec_decode_num_accepted_tokens_per_pos_total{m=\"a\",position=\"0\"} 95\n"
      "vllm:spec_decode_num_accepted_tokens_per_pos_total{m=\"a\",position=\"1\"} 60\n");

  const ServerFigures figures = ServerFigures::between(before, after);

  EXPECT_EQ(figures.mean_ttft_ms, 250.0);
  EXPECT_EQ(figures.prefix_hit_percent, 75.0);
  ASSERT_TRUE(figures.drafts);
  EXPECT_EQ(figures.drafts->drafts, 100);
  EXPECT_EQ(figures.drafts->acceptance_percent(), 75.0);
  EXPECT_EQ(figures.drafts->acceptance_length(), 2.5);
  EXPECT_THAT(figures.drafts->accepted_at, ElementsAre(DoubleEq(0.9), DoubleEq(0.6)));
}

TEST(ServerFigures, AreAbsentWhenNothingWasAdded) {
  const ServerMetrics metrics = ServerMetrics::parse("vllm:time_to_first_token_seconds_count 3\n");

  const ServerFigures figures = ServerFigures::between(metrics, metrics);

  EXPECT_FALSE(figures.mean_ttft_ms);
  EXPECT_FALSE(figures.prefix_hit_percent);
  EXPECT_FALSE(figures.drafts);
}

}  // namespace
}  // namespace quern
