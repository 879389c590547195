// What a key may still ask, on a clock of the test's own.
#include "server/access/budget.h"

#include <gtest/gtest.h>
#include <string>

namespace quern {
namespace {

constexpr int64_t kSecond = 1'000'000;

std::string header(const HttpHeaders& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return "";
}

TEST(KeyBudget, RequestsComeBackOverTheMinute) {
  KeyBudget budget({.requests_per_minute = 2});

  EXPECT_FALSE(budget.enter(0));
  EXPECT_FALSE(budget.enter(0));
  const auto refused = budget.enter(kSecond);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 429);
  EXPECT_EQ(refused->retry_after_s, 29);
  EXPECT_TRUE(budget.enter(29 * kSecond));
  EXPECT_FALSE(budget.enter(30 * kSecond));
}

TEST(KeyBudget, OnlySoManyRunAtATime) {
  KeyBudget budget({.concurrency = 1});

  EXPECT_FALSE(budget.enter(0));
  EXPECT_EQ(budget.enter(0)->status, 429);
  budget.leave();
  EXPECT_FALSE(budget.enter(0));
}

TEST(KeyBudget, AnswersMayLeaveADebt) {
  KeyBudget budget({.tokens_per_minute = 60});

  EXPECT_FALSE(budget.enter(0));
  EXPECT_FALSE(budget.spend(50, 0));
  budget.charge(40, 0);

  EXPECT_EQ(budget.enter(0)->retry_after_s, 31);
  EXPECT_TRUE(budget.enter(30 * kSecond));
  EXPECT_FALSE(budget.enter(31 * kSecond));
  EXPECT_EQ(budget.spend(10, 31 * kSecond)->retry_after_s, 9);
}

TEST(KeyBudget, APromptBeyondAMinutesTokensNeedsAFullMinute) {
  KeyBudget budget({.tokens_per_minute = 60});

  EXPECT_FALSE(budget.spend(600, 0));
  EXPECT_TRUE(budget.spend(600, 540 * kSecond));
  EXPECT_FALSE(budget.spend(600, 601 * kSecond));
}

TEST(KeyBudget, HeadersSayWhatIsLeft) {
  KeyBudget budget({.requests_per_minute = 60, .tokens_per_minute = 600});
  budget.enter(0);
  budget.spend(100, 0);

  const HttpHeaders headers = budget.headers(0);

  EXPECT_EQ(header(headers, "X-RateLimit-Limit-Requests"), "60");
  EXPECT_EQ(header(headers, "X-RateLimit-Remaining-Requests"), "59");
  EXPECT_EQ(header(headers, "X-RateLimit-Reset-Requests"), "1.000s");
  EXPECT_EQ(header(headers, "X-RateLimit-Limit-Tokens"), "600");
  EXPECT_EQ(header(headers, "X-RateLimit-Remaining-Tokens"), "500");
  EXPECT_EQ(header(headers, "X-RateLimit-Reset-Tokens"), "10.000s");
  EXPECT_TRUE(KeyBudget(KeyLimits{}).headers(0).empty());
}

TEST(KeyBudget, OtherLimitsBeginUnused) {
  KeyBudget budget({.requests_per_minute = 1});
  EXPECT_FALSE(budget.enter(0));
  budget.set_limits({.requests_per_minute = 1});
  EXPECT_TRUE(budget.enter(0));

  budget.set_limits({.requests_per_minute = 5});

  EXPECT_FALSE(budget.enter(0));
}

}  // namespace
}  // namespace quern
