#include "apps/measure/windows.h"

#include <cmath>
#include <gtest/gtest.h>

namespace quern {
namespace {

TEST(Windows, WithoutAStrideTheSecondHalvesOfWholeWindowsAreScored) {
  const auto windows = cut_windows(1100, {512, 0}, 0);

  ASSERT_TRUE(windows.ok());
  ASSERT_EQ(windows->size(), 2U);
  EXPECT_EQ(windows->at(1).begin, 512);
  EXPECT_EQ(windows->at(1).end, 1024);
  EXPECT_EQ(windows->at(1).score_from, 257);
  EXPECT_EQ(windows->at(1).scored(), 255);
  EXPECT_EQ(windows->at(1).first_scored, 255);
}

TEST(Windows, WithAStrideEveryTokenButTheFirstIsScoredOnce) {
  for (const int32_t stride : {1, 7, 63, 64}) {
    for (const int64_t tokens : {3, 60, 64, 65, 127, 128, 300}) {
      const auto windows = cut_windows(tokens, {64, stride}, 0);
      ASSERT_TRUE(windows.ok()) << stride << " " << tokens;

      int64_t next = 1;
      int64_t scored = 0;
      for (const Window& window : *windows) {
        // Whole windows have nothing before their first token.
        if (window.begin == next && window.score_from == 1) ++next;
        EXPECT_EQ(window.begin + window.score_from, next);
        EXPECT_EQ(window.first_scored, scored);
        scored += window.scored();
        next = window.end;
      }
      EXPECT_EQ(next, tokens);
    }
  }
}

TEST(Windows, RefusesWhatScoresNothing) {
  EXPECT_FALSE(cut_windows(511, {512, 0}, 0).ok());
  EXPECT_FALSE(cut_windows(1, {512, 512}, 0).ok());
  EXPECT_FALSE(cut_windows(5000, {512, 513}, 0).ok());
  EXPECT_FALSE(cut_windows(5000, {3, 0}, 0).ok());
  EXPECT_FALSE(cut_windows(5000, {512, -1}, 0).ok());
  EXPECT_EQ(cut_windows(5000, {512, 0}, 3)->size(), 3U);
}

TEST(Surprise, GivesMeanAndStandardError) {
  Surprise surprise;
  for (const double nats : {1.0, 2.0, 3.0, 6.0}) surprise.add(nats);

  EXPECT_DOUBLE_EQ(surprise.mean(), 3.0);
  EXPECT_NEAR(surprise.error(), std::sqrt(14.0 / 3 / 4), 1e-12);  // of the unbiased variance
  EXPECT_DOUBLE_EQ(surprise.perplexity(), std::exp(3.0));
}

}  // namespace
}  // namespace quern
