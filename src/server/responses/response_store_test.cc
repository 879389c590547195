// What the store of answers keeps, and for whom.
#include "server/responses/response_store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

namespace quern {
namespace {

StoredResponse response_of(size_t bytes) { return {std::string(bytes, 'x'), {}, 0}; }

TEST(ResponseStore, GivesBackWhatWasPut) {
  ResponseStore store(1 << 20, 10);
  const auto item = std::make_shared<const std::string>("{}");
  store.put("", "a", {"body", {item, item}, 1});

  const auto found = store.find("", "a");

  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->body, "body");
  EXPECT_EQ(found->items.size(), 2U);
  EXPECT_EQ(found->inputs, 1U);
  EXPECT_EQ(store.find("", "b"), nullptr);
}

TEST(ResponseStore, OthersFindNothing) {
  ResponseStore store(1 << 20, 10);
  store.put("one", "a", response_of(1));

  EXPECT_EQ(store.find("two", "a"), nullptr);
  EXPECT_EQ(store.find("", "a"), nullptr);
  EXPECT_FALSE(store.erase("two", "a"));
  EXPECT_NE(store.find("one", "a"), nullptr);
}

TEST(ResponseStore, ForgetsWhatIsErased) {
  ResponseStore store(1 << 20, 10);
  store.put("", "a", response_of(1));

  EXPECT_TRUE(store.erase("", "a"));
  EXPECT_FALSE(store.erase("", "a"));
  EXPECT_EQ(store.find("", "a"), nullptr);
}

TEST(ResponseStore, TheLeastRecentlyUsedGoesFirst) {
  ResponseStore store(1 << 20, 2);
  store.put("", "a", response_of(1));
  store.put("", "b", response_of(1));
  store.find("", "a");
  store.put("", "c", response_of(1));

  EXPECT_NE(store.find("", "a"), nullptr);
  EXPECT_EQ(store.find("", "b"), nullptr);
  EXPECT_NE(store.find("", "c"), nullptr);
}

TEST(ResponseStore, StaysWithinItsBytes) {
  ResponseStore store(100'000, 1'000'000);
  for (int i = 0; i < 1000; ++i) store.put("", std::to_string(i), response_of(10'000));
  int kept = 0;
  for (int i = 0; i < 1000; ++i) kept += store.find("", std::to_string(i)) != nullptr ? 1 : 0;
  EXPECT_EQ(kept, 9);

  store.put("", "large", response_of(200'000));

  EXPECT_EQ(store.find("", "large"), nullptr);
  EXPECT_NE(store.find("", "999"), nullptr);
}

TEST(ResponseStore, ManyThreadsMayUseIt) {
  ResponseStore store(50'000, 20);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&store, t] {
      for (int i = 0; i < 500; ++i) {
        const std::string id = fmt::format("{}", (i * 7 + t) % 40);
        store.put("", id, response_of(static_cast<size_t>(100 + i)));
        if (const auto found = store.find("", id)) EXPECT_GE(found->body.size(), 100U);
        if (i % 3 == 0) store.erase("", id);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace quern
