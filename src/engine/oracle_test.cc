// Any schedule gives the same text, and leaves nothing behind.
#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>

#include "engine/oracle_driver.h"

namespace quern {
namespace {

/// QUERN_SOAK_REQUESTS=1000000 makes it the long run.
int64_t soak_requests(int64_t otherwise) {
  const char* text = std::getenv("QUERN_SOAK_REQUESTS");
  return text != nullptr ? std::atoll(text) : otherwise;
}
uint64_t first_seed() {
  const char* text = std::getenv("QUERN_SOAK_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
}

/// 10,000 and more random requests with cancels, failures and deadlines; the pages are counted after every call.
TEST(OracleSoak, C2C23AnyScheduleGivesTheSameTextAndDrains) {
  const int64_t wanted = soak_requests(12000);
  const bool soak = wanted > 100000;
  int64_t requests = 0;
  EngineStats sum;
  int64_t accepted_drafts = 0;
  uint64_t seed = first_seed();
  for (; requests < wanted; ++seed) {
    std::mt19937_64 random(seed);
    OracleCase c = OracleCase::random(random, soak ? 200 : 60);
    if (soak) c.check_every = 16;
    OracleDriver driver(c, seed);

    const std::string wrong = driver.run();

    ASSERT_EQ(wrong, "") << "seed " << seed;
    const EngineStats stats = driver.scheduler().stats();
    requests += stats.requests_accepted;
    sum.steps += stats.steps;
    sum.generation_tokens += stats.generation_tokens;
    sum.prefix_hits_tokens += stats.prefix_hits_tokens;
    sum.preemptions += stats.preemptions;
    for (size_t i = 0; i < 5; ++i) sum.requests_finished[i] += stats.requests_finished[i];
    accepted_drafts += driver.device().accepted_drafts();
  }
  std::printf(
      "%lld schedules, %lld requests (%lld stop, %lld length, %lld cancelled, %lld deadline, %lld error), "
      "%lld steps, %lld tokens, %lld from the cache, %lld preemptions, %lld drafts accepted: 0 wrong\n",
      static_cast<long long>(seed - first_seed()), static_cast<long long>(requests),
      static_cast<long long>(sum.requests_finished[0]), static_cast<long long>(sum.requests_finished[1]),
      static_cast<long long>(sum.requests_finished[2]), static_cast<long long>(sum.requests_finished[3]),
      static_cast<long long>(sum.requests_finished[4]), static_cast<long long>(sum.steps),
      static_cast<long long>(sum.generation_tokens), static_cast<long long>(sum.prefix_hits_tokens),
      static_cast<long long>(sum.preemptions), static_cast<long long>(accepted_drafts));
  // The run proves nothing about what it never met.
  for (const int64_t finished : sum.requests_finished) EXPECT_GT(finished, 0);
  EXPECT_GT(sum.preemptions, 0);
  EXPECT_GT(sum.prefix_hits_tokens, 0);
  EXPECT_GT(accepted_drafts, 0);
}

/// With logprobs, masks, stop tokens, failing rows and whatever else a request may have, drafts being right or wrong.
TEST(OracleSoak, C16DraftsChangeNoText) {
  int64_t accepted = 0;
  for (uint64_t seed = first_seed(); seed < first_seed() + 40; ++seed) {
    std::mt19937_64 random(seed);
    OracleCase c = OracleCase::random(random, 60);
    c.options.max_drafts = 1 + static_cast<int32_t>(seed % 4);
    OracleDriver driver(c, seed);

    ASSERT_EQ(driver.run(), "") << "seed " << seed;

    accepted += driver.device().accepted_drafts();
  }
  EXPECT_GT(accepted, 1000);
}

}  // namespace
}  // namespace quern
