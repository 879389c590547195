#include <atomic>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "base/channel.h"
#include "base/escapes.h"
#include "base/json.h"
#include "base/thread_pool.h"

namespace quern {
namespace {

TEST(Escapes, PercentsAreReadOnceAndOnlyWhereTheyAreWhole) {
  EXPECT_EQ(percent_decoded("a%2Fb%2f%2541 %"), "a/b/%41 %");
  EXPECT_EQ(percent_decoded("%4%zz%4z%+1"), "%4%zz%4z%+1");
}

/// The examples of RFC 4648.
TEST(Escapes, BytesBecomeBase64) {
  const std::pair<const char*, const char*> cases[] = {{"", ""},
                                                       {"f", "Zg=="},
                                                       {"fo", "Zm8="},
                                                       {"foo", "Zm9v"},
                                                       {"foob", "Zm9vYg=="},
                                                       {"fooba", "Zm9vYmE="},
                                                       {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, expected] : cases) {
    std::string out = "x";
    append_base64(out, bytes);
    EXPECT_EQ(out, "x" + std::string(expected));
  }
}

TEST(Json, KeepsOrderAndReadsMembersByType) {
  const Json json = Json::parse(R"({"b": 1, "a": [true, null, 2.5, "x\u00e9"], "n": null})").value();

  EXPECT_EQ(json.integer("b"), 1);
  EXPECT_EQ(json.number("b"), 1.0);
  EXPECT_EQ(json.string("b"), std::nullopt);
  EXPECT_EQ(json.present("n"), nullptr);
  EXPECT_EQ(json.dump(), "{\"b\":1,\"a\":[true,null,2.5,\"x\u00e9\"],\"n\":null}");
}

// S10
TEST(Json, RefusesEqualKeysWhenAsked) {
  EXPECT_TRUE(Json::parse(R"({"a":{"b":1},"b":2})", 64, Json::Repeated::refused).ok());
  const auto parsed = Json::parse(R"([{"a":1,"b":2,"a":3}])", 64, Json::Repeated::refused);
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error().message, R"(key "a" is there twice)");
}

TEST(Json, TextAfterANulIsNotIgnored) {
  EXPECT_FALSE(Json::parse(std::string_view("{}\0{", 4)).ok());
  EXPECT_FALSE(Json::parse(std::string_view("\0", 1)).ok());
}

TEST(Json, TakesTheLastOfEqualKeys) { EXPECT_EQ(Json::parse(R"({"a":1,"a":2})").value().dump(), R"({"a":2})"); }

TEST(Json, RefusesWhatIsNotJson) {
  for (const char* text : {"", "{", "[1,]", "{\"a\":NaN}", "1 2", "\"\xff\"", "1e999", "{'a':1}"}) {
    EXPECT_FALSE(Json::parse(text).ok()) << text;
  }
}

// S10
TEST(Json, RefusesDeepNestingWithoutRecursion) {
  const std::string deep(1000000, '[');

  const auto parsed = Json::parse(deep);

  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error().message, "nested deeper than 64 levels");
}

TEST(Json, WritesBytesThatAreNoUtf8AsReplacement) {
  std::string out;
  append_json_string(out, "a\xff\xe2\x82z\x01\n\"");
  EXPECT_EQ(out, "\"a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDz\\u0001\\n\\\"\"");
}

TEST(Channel, RefusesWhenFullAndDrainsAfterClose) {
  Channel<int> channel(1);

  EXPECT_TRUE(channel.try_send(1));
  EXPECT_FALSE(channel.try_send(2));
  channel.close();

  EXPECT_EQ(channel.receive(), 1);
  EXPECT_EQ(channel.receive(), std::nullopt);
}

TEST(ThreadPool, CoversEveryIndexOnce) {
  ThreadPool pool(3);
  std::vector<std::atomic<int>> hits(1000);

  for (int round = 0; round < 50; ++round) {
    pool.parallel_for(1000, 7, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
    });
  }

  for (const auto& hit : hits) EXPECT_EQ(hit.load(), 50);
}

TEST(ThreadPool, RegionsOfBothKindsFollowEachOther) {
  ThreadPool pool(4);
  int64_t pieces = 0;
  int64_t calls = 0;

  for (int round = 0; round < 20000; ++round) {
    std::atomic<int64_t> sum{0};  // of this round: a worker that came too late would write to a dead one
    pool.parallel_for(8, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
    pieces += sum.load();
    std::atomic<int> here{0};
    if (round % 16 == 0) pool.run([&](int) { ++here; });
    calls += here.load();
  }

  EXPECT_EQ(pieces, 8 * 20000);
  EXPECT_EQ(calls, 4 * 20000 / 16);
}

TEST(ThreadPool, ThreadsTakeTurns) {
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  std::atomic<int> wrong = 0;

  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        std::vector<int> seen(97, 0);
        pool.parallel_for(97, 5, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
        });
        if (seen != std::vector<int>(97, 1)) ++wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();

  EXPECT_EQ(wrong, 0);
}

TEST(ThreadPool, BarrierOrdersPhases) {
  ThreadPool pool(4);
  std::atomic<int> first{0};
  std::atomic<bool> wrong{false};

  for (int round = 1; round <= 200; ++round) {
    pool.run([&](int) {
      ++first;
      pool.barrier();
      if (first.load() != 4 * round) wrong = true;
      pool.barrier();
    });
  }

  EXPECT_FALSE(wrong.load());
}

}  // namespace
}  // namespace quern
