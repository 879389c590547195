// Which models are loaded when: first use, least use, memory, time, sleep, and the end.
#include "server/models/keeper.h"

#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "server/models/scripted_host.h"
#include "server/openai/model_field.h"

namespace quern {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

class ModelKeeperTest : public ::testing::Test {
 protected:
  using Answer = std::future<Checked<ModelRef>>;

  void start(std::vector<ModelCard> cards) {
    keeper_ = std::make_unique<ModelKeeper>(options_, std::move(cards), host_);
    ASSERT_TRUE(keeper_->start().ok());
  }
  void serve(const std::vector<std::string>& names) {
    std::vector<ModelCard> cards;
    for (const std::string& name : names) cards.push_back(ScriptedHost::card(name));
    start(std::move(cards));
  }

  Answer want(const std::string& name, int64_t deadline_us = 0) {
    auto promise = std::make_shared<std::promise<Checked<ModelRef>>>();
    Answer answer = promise->get_future();
    keeper_->want(name, deadline_us, [promise](Checked<ModelRef> model) { promise->set_value(std::move(model)); });
    return answer;
  }
  /// The model, which must come.
  ModelRef get(const std::string& name) { return want(name).get().value(); }
  ApiError refusal(const std::string& name) { return want(name).get().error(); }
  ModelState state(size_t index) { return keeper_->states().at(index); }

  KeeperOptions options_;
  ScriptedHost host_;
  std::unique_ptr<ModelKeeper> keeper_;
};

TEST_F(ModelKeeperTest, LoadsAModelWhenItIsFirstUsed) {
  serve({"a", "b"});
  EXPECT_THAT(host_.alive(), IsEmpty());

  EXPECT_EQ(get("a")->options().model_names.front(), "a");
  EXPECT_EQ(get("").get(), get("a").get());

  EXPECT_EQ(host_.loads(), 1);
  EXPECT_THAT(host_.alive(), ElementsAre("a"));
}

TEST_F(ModelKeeperTest, LoadsWhatIsPinnedAtStart) {
  start({ScriptedHost::card("a"), ScriptedHost::card("b", 1, true)});

  EXPECT_THAT(host_.alive(), ElementsAre("b"));
}

TEST_F(ModelKeeperTest, TellsWhyAPinnedModelCannotBeLoaded) {
  host_.fail("a");
  ModelKeeper keeper(options_, {ScriptedHost::card("a", 1, true)}, host_);

  EXPECT_EQ(keeper.start().error().message, "the file of a is broken");
}

TEST_F(ModelKeeperTest, RequestsWaitWhileTheirModelIsLoaded) {
  host_.hold();
  serve({"a"});
  Answer first = want("a");
  Answer second = want("a");
  EXPECT_EQ(host_.next_started(), "a");
  EXPECT_EQ(state(0).waiting, 2U);

  host_.release();

  EXPECT_EQ(first.get().value(), second.get().value());
  EXPECT_EQ(host_.loads(), 1);
}

TEST_F(ModelKeeperTest, UnloadsWhatWasNotUsedForLongest) {
  options_.memory_bytes = 2;
  serve({"a", "b", "c"});
  get("a");
  get("b");
  get("a");

  get("c");

  EXPECT_EQ(host_.next_destroyed(), "b");
  EXPECT_THAT(host_.alive(), ElementsAre("a", "c"));
  EXPECT_EQ(state(1).unloads, 1);
}

TEST_F(ModelKeeperTest, KeepsAModelUntilItsLastRequestHasEnded) {
  options_.memory_bytes = 1;
  serve({"a", "b"});
  ModelRef used = get("a");

  Answer waiting = want("b");
  EXPECT_EQ(waiting.wait_for(20ms), std::future_status::timeout);
  EXPECT_THAT(host_.alive(), ElementsAre("a"));
  used = nullptr;

  EXPECT_TRUE(waiting.get().ok());
  EXPECT_THAT(host_.alive(), ElementsAre("b"));
}

TEST_F(ModelKeeperTest, TakesAModelBackThatIsStillInUse) {
  serve({"a"});
  const ModelRef used = get("a");
  keeper_->set_keep_alive("a", 0);
  while (state(0).model) std::this_thread::yield();
  keeper_->set_keep_alive("a", -1);

  EXPECT_EQ(get("a"), used);

  EXPECT_EQ(host_.loads(), 1);
}

TEST_F(ModelKeeperTest, PrefersToUnloadWhatNobodyUses) {
  options_.memory_bytes = 2;
  serve({"a", "b", "c"});
  const ModelRef used = get("a");
  get("b");

  get("c");

  EXPECT_THAT(host_.alive(), ElementsAre("a", "c"));
}

TEST_F(ModelKeeperTest, NeverUnloadsWhatIsPinned) {
  options_.memory_bytes = 2;
  options_.keep_alive_s = 0;
  start({ScriptedHost::card("a", 1, true), ScriptedHost::card("b", 2), ScriptedHost::card("c", 1)});

  const ApiError error = refusal("b");

  EXPECT_EQ(error.status, 503);
  EXPECT_THAT(error.message, HasSubstr("does not fit"));
  EXPECT_TRUE(want("c").get().ok());
  EXPECT_TRUE(host_.alive().contains("a"));
}

TEST_F(ModelKeeperTest, AModelThatCannotBeLoadedHarmsNoOther) {
  options_.retry_after_s = 0;
  host_.fail("a");
  serve({"a", "b"});

  const ApiError error = refusal("a");

  EXPECT_EQ(error.status, 503);
  EXPECT_THAT(error.message, HasSubstr("`a` could not be loaded"));
  EXPECT_EQ(error.message.find("broken"), std::string::npos);  // S33: the reason is for the log
  EXPECT_EQ(state(0).failed_loads, 1);
  EXPECT_TRUE(want("b").get().ok());
  host_.fail("a", false);
  EXPECT_TRUE(want("a").get().ok());
}

TEST_F(ModelKeeperTest, DoesNotTryABrokenModelAgainAtOnce) {
  options_.retry_after_s = 1000;
  host_.fail("a");
  serve({"a"});

  EXPECT_EQ(refusal("a").status, 503);
  EXPECT_EQ(refusal("a").status, 503);

  EXPECT_EQ(state(0).failed_loads, 1);
}

TEST_F(ModelKeeperTest, UnloadsAnIdleModelAfterItsTime) {
  options_.keep_alive_s = 0.005;
  serve({"a"});

  get("a");

  EXPECT_EQ(host_.next_destroyed(), "a");
}

TEST_F(ModelKeeperTest, AnotherTimeMayBeSetForOneModel) {
  options_.keep_alive_s = 0.005;
  serve({"a", "b"});
  EXPECT_TRUE(keeper_->set_keep_alive("a", -1));
  EXPECT_FALSE(keeper_->set_keep_alive("nobody", 1));

  get("a");
  get("b");

  EXPECT_EQ(host_.next_destroyed(), "b");
  EXPECT_EQ(state(0).expires_in_s, std::nullopt);
  keeper_->set_keep_alive("a", 0);
  EXPECT_EQ(host_.next_destroyed(), "a");
}

TEST_F(ModelKeeperTest, ARequestWaitsNoLongerThanItsDeadline) {
  host_.hold();
  options_.load_timeout_s = 0.01;
  serve({"a"});

  const ApiError own = want("a", now_us() + 1000).get().error();
  const ApiError general = want("a").get().error();

  EXPECT_EQ(own.status, 504);
  EXPECT_EQ(general.status, 503);
  host_.release();
}

TEST_F(ModelKeeperTest, OnlySoManyRequestsWait) {
  host_.hold();
  options_.max_waiting = 1;
  serve({"a", "b"});
  Answer waiting = want("a");

  EXPECT_EQ(refusal("b").status, 429);

  host_.release();
  EXPECT_TRUE(waiting.get().ok());
}

TEST_F(ModelKeeperTest, KnowsNoOtherNames) {
  serve({"a", "b"});

  const ApiError error = refusal("c");

  EXPECT_EQ(error.status, 404);
  EXPECT_THAT(error.message, HasSubstr("This server has: a, b."));
}

TEST_F(ModelKeeperTest, GivesItsMemoryBackWhileItSleeps) {
  start({ScriptedHost::card("a", 1, true), ScriptedHost::card("b"), ScriptedHost::card("c")});
  get("b");
  std::promise<void> asleep;

  keeper_->sleep(1, [&] { asleep.set_value(); });
  asleep.get_future().get();

  EXPECT_THAT(host_.alive(), IsEmpty());
  EXPECT_EQ(keeper_->sleep_level(), 1);
  EXPECT_EQ(refusal("a").status, 503);

  std::promise<void> awake;
  keeper_->wake_up([&] { awake.set_value(); });
  awake.get_future().get();
  EXPECT_THAT(host_.alive(), ElementsAre("a", "b"));
  EXPECT_EQ(keeper_->sleep_level(), 0);
}

TEST_F(ModelKeeperTest, CountsOnOverUnloadedModels) {
  serve({"a"});
  get("a");
  EngineStats stats;
  stats.steps = 7;
  host_.service("a").set_stats(stats);
  keeper_->set_keep_alive("a", 0);
  EXPECT_EQ(host_.next_destroyed(), "a");
  keeper_->set_keep_alive("a", -1);
  EXPECT_EQ(state(0).stats.steps, 7);

  get("a");
  host_.service("a").set_stats(stats);

  EXPECT_EQ(state(0).stats.steps, 14);
}

TEST_F(ModelKeeperTest, EndsWhileAModelIsLoadedAndOthersWait) {
  host_.hold();
  serve({"a", "b"});
  Answer loading = want("a");
  Answer waiting = want("b");
  EXPECT_EQ(host_.next_started(), "a");

  std::thread stopping([&] { keeper_->stop(); });

  EXPECT_EQ(loading.get().error().status, 503);
  EXPECT_EQ(waiting.get().error().status, 503);
  host_.release();
  stopping.join();
  EXPECT_THAT(host_.alive(), IsEmpty());
}

TEST_F(ModelKeeperTest, ManyThreadsWantMoreModelsThanFit) {
  options_.memory_bytes = 2;
  serve({"a", "b", "c", "d"});
  std::vector<std::thread> threads;
  std::atomic<int> served = 0;

  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const std::string name(1, static_cast<char>('a' + (t * 7 + i * 3) % 4));
        const ModelRef model = get(name);
        served += model->options().model_names.front() == name && model->engine->stats().running == 0 ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(served, 200);
  EXPECT_LE(host_.alive().size(), 2U);
}

TEST(ModelField, IsFoundWithoutTheRest) {
  EXPECT_EQ(model_field(R"({"model":"a"})"), "a");
  EXPECT_EQ(model_field(" {\"x\" : [1, {\"model\":\"no\"}, \"]}\\\"\"] ,\n\"model\" : \"a\\u0062\" , \"y\":1}"), "ab");
  EXPECT_EQ(model_field(R"({"s":"{\"model\":\"no\"}","model":"a"})"), "a");
}

TEST(ModelField, IsEmptyWhereThereIsNone) {
  for (const char* body : {"", "[]", "{}", "{", R"({"model)", R"({"model":)", R"({"model":1})", R"({"model":null})",
                           R"({"a":{"model":"x"}})", R"({"a":"\)", R"({"model":"a)", "{]", R"({"a":1]"model":"x"})"})
    EXPECT_EQ(model_field(body), "") << body;
}

}  // namespace
}  // namespace quern
