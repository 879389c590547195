// Points whose figures are computed by hand: which is the knee, and what its tokens cost.
#include "apps/load/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quern {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// `tokens` in ten seconds, with waits in milliseconds.
SweepPoint point_of(int concurrency, int64_t tokens, double ttft, double tpot, int failed = 0) {
  SweepPoint point{concurrency, {}};
  point.report.facts.seconds = 10.0;
  point.report.completed = 20;
  point.report.failed = failed;
  point.report.input_tokens = 3 * tokens;
  point.report.output_tokens = tokens;
  point.report.ttft = {ttft, ttft / 2, 0.0, {{99.0, ttft}}};
  point.report.tpot = {tpot, tpot / 2, 0.0, {{99.0, tpot}}};
  return point;
}

Sweep sweep_of(const std::string& limits, double price = 0.0) {
  auto sweep = Sweep::parse({"1,4,16,64", limits, price});
  EXPECT_TRUE(sweep.ok());
  return *sweep;
}

const std::vector<SweepPoint> points{point_of(1, 1000, 50, 8), point_of(4, 3600, 80, 9), point_of(16, 9500, 300, 14),
                                     point_of(64, 10000, 2000, 40)};

TEST(Sweep, ReadsConcurrenciesInAnyOrder) {
  EXPECT_THAT(Sweep::parse({"16,1,4", "", 0})->concurrencies, ElementsAre(1, 4, 16));
  for (const char* wrong : {"", "0", "a", "1,,2", "1025", "-3"})
    EXPECT_FALSE(Sweep::parse({wrong, "", 0}).ok()) << wrong;
  EXPECT_FALSE(Sweep::parse({"1", "ttft", 0}).ok());
  EXPECT_FALSE(Sweep::parse({"1", "", -1}).ok());
}

TEST(Sweep, KneeIsTheMostTokensWithinTheLimits) {
  EXPECT_EQ(knee_of(sweep_of("ttft:500,tpot:20"), points)->concurrency, 16);
  EXPECT_EQ(knee_of(sweep_of("tpot:9.5"), points)->concurrency, 4);
  EXPECT_EQ(knee_of(sweep_of("ttft:5000"), points)->concurrency, 64);
  EXPECT_EQ(knee_of(sweep_of("ttft:10"), points), nullptr);
  EXPECT_EQ(knee_line(sweep_of("ttft:10"), points), "no concurrency stays within TTFT 10 ms at p99\n");
}

TEST(Sweep, KneeWithoutLimitsIsTheFirstWithNearlyAllTokens) {
  EXPECT_EQ(knee_of(sweep_of(""), points)->concurrency, 16);
  EXPECT_EQ(knee_of(sweep_of(""), std::vector{point_of(1, 5000, 1, 1), point_of(4, 9000, 1, 1, 2)})->concurrency, 1);
}

TEST(Sweep, PricesAMillionTokens) {
  const Sweep sweep = sweep_of("ttft:500,tpot:20", 3.42);
  EXPECT_DOUBLE_EQ(million_price(3.6, 1000), 1.0);
  EXPECT_EQ(million_price(3.6, 0), 0.0);
  EXPECT_EQ(knee_line(sweep, points),
            "the most tokens within TTFT 500 ms, TPOT 20 ms at p99: concurrency 16, 950.0 output tokens/s, 1.000 for a "
            "million of them\n");
  const Json json = point_json(sweep, points[2]);
  EXPECT_DOUBLE_EQ(*json.number("output_throughput"), 950.0);
  EXPECT_DOUBLE_EQ(*json.number("total_token_throughput"), 3800.0);
  EXPECT_DOUBLE_EQ(*json.number("price_per_million_tokens"), 0.25);
  EXPECT_DOUBLE_EQ(*json.number("p99_ttft_ms"), 300.0);
  EXPECT_THAT(point_line(sweep, points[2]), HasSubstr("0.250"));
}

}  // namespace
}  // namespace quern
