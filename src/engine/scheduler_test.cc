// Single behaviours of the scheduler. That any mix of them gives the right text is the oracle test's business.
#include "engine/scheduler.h"

#include <deque>
#include <gtest/gtest.h>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "engine/oracle_driver.h"

namespace quern {
namespace {

/// A scheduler whose steps run at once on the oracle.
struct Rig {
  explicit Rig(const EngineOptions& options)
      : scheduler(options), device(OracleModel{.vocab = 100}, options.groups, options.pages, options.max_num_seqs) {}

  Request request(std::vector<int32_t> prompt, int max_tokens) {
    Request made;
    made.id = RequestId{++ids};
    made.prompt = std::move(prompt);
    made.max_tokens = max_tokens;
    made.sink = sinks.emplace_back(std::make_shared<OracleSink>());
    return made;
  }
  OracleSink& add(Request made) {
    OracleSink& sink = *static_cast<OracleSink*>(made.sink.get());
    scheduler.add(Arrival(std::move(made)));
    return sink;
  }
  OracleSink& add(std::vector<int32_t> prompt, int max_tokens) { return add(request(std::move(prompt), max_tokens)); }

  StepPlan plan() {
    StepPlan plan = scheduler.plan(++now_us);
    if (!plan.slices.empty()) device.submitted(plan);
    return plan;
  }
  void complete(const StepPlan& plan) {
    scheduler.commit(device.run(plan, {}), ++now_us);
    EXPECT_EQ(scheduler.check(), "");
    EXPECT_EQ(device.wrong(), "");
  }
  StepPlan step() {
    StepPlan done = plan();
    if (!done.slices.empty()) complete(done);
    return done;
  }
  void drain() {
    while (!scheduler.idle()) ASSERT_FALSE(step().slices.empty());
  }
  int used_pages() const {
    const EngineStats stats = scheduler.stats();
    return stats.pages_total - stats.pages_free - stats.pages_cached;
  }

  Scheduler scheduler;
  OracleDevice device;
  std::vector<std::shared_ptr<OracleSink>> sinks;
  uint64_t ids = 0;
  int64_t now_us = 0;
};

std::vector<int32_t> counted(int count, int first = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

EngineOptions options_of(int pages, int rows, int step_tokens) {
  EngineOptions options;
  options.pages = pages;
  options.max_num_seqs = rows;
  options.max_num_batched_tokens = step_tokens;
  options.max_model_len = 10000;
  return options;
}

TEST(Scheduler, ComputesOnlyTheLastTokenOfAKnownPrompt) {
  Rig rig(options_of(600, 4, 512));
  rig.add(counted(4096), 2);
  rig.drain();

  OracleSink& again = rig.add(counted(4096), 2);
  const StepPlan plan = rig.step();

  EXPECT_EQ(again.cached_tokens, 4095);
  EXPECT_EQ(plan.slices.at(0).count, 1);
  ASSERT_EQ(plan.copies.size(), 1U);
  EXPECT_EQ(plan.copies[0].tokens, 15);
  rig.drain();
}

TEST(Scheduler, SharesAPrefixThatEndsInsideAPage) {
  Rig rig(options_of(60, 4, 512));
  rig.add(counted(64), 1);
  rig.drain();
  std::vector<int32_t> prompt = counted(37);
  prompt.push_back(99);
  prompt.push_back(98);

  OracleSink& sink = rig.add(prompt, 1);
  rig.drain();

  EXPECT_EQ(sink.cached_tokens, 37);
}

// S31, S32
TEST(Scheduler, KeepsNamespacesApart) {
  Rig rig(options_of(60, 4, 512));
  rig.add(counted(64), 1);
  rig.drain();
  Request salted = rig.request(counted(64), 1);
  salted.cache_salt = 7;
  Request adapted = rig.request(counted(64), 1);
  adapted.adapter = 2;

  const OracleSink& first = rig.add(std::move(salted));
  const OracleSink& second = rig.add(std::move(adapted));
  rig.drain();

  EXPECT_EQ(first.cached_tokens, 0);
  EXPECT_EQ(second.cached_tokens, 0);
}

TEST(Scheduler, WaitsForAPrefixThatAnotherRequestComputes) {
  Rig rig(options_of(60, 4, 32));
  rig.add(counted(96), 3);
  rig.step();
  OracleSink& second = rig.add(counted(96), 3);

  while (second.tokens.empty()) rig.step();
  rig.drain();

  EXPECT_EQ(second.cached_tokens, 95);
  EXPECT_EQ(rig.scheduler.stats().prompt_tokens, 96 + 1);
}

TEST(Scheduler, StopsWaitingWhenTheOtherOneIsCancelled) {
  Rig rig(options_of(60, 4, 32));
  rig.add(counted(96), 3);
  rig.step();
  OracleSink& second = rig.add(counted(96), 3);
  rig.step();

  rig.scheduler.cancel(RequestId{1});
  rig.drain();

  EXPECT_EQ(second.finish, FinishReason::length);
  EXPECT_EQ(second.cached_tokens, 64);
}

TEST(Scheduler, DecodesAndSendsPromptsInOneStepWithinTheBudget) {
  Rig rig(options_of(100, 4, 20));
  rig.add(counted(5), 50);
  rig.step();
  rig.add(counted(60, 30), 5);

  const StepPlan plan = rig.step();

  ASSERT_EQ(plan.slices.size(), 2U);
  EXPECT_TRUE(plan.slices[0].decoding());
  EXPECT_EQ(plan.slices[1].count, 19);
  rig.drain();
}

TEST(Scheduler, PlansTheNextStepWhileOneIsInFlight) {
  Rig rig(options_of(100, 4, 20));
  rig.add(counted(5), 10);

  const StepPlan first = rig.plan();
  const StepPlan second = rig.plan();

  EXPECT_EQ(first.slices.at(0).begin, 0);
  EXPECT_TRUE(second.slices.at(0).decoding());
  rig.complete(first);
  rig.complete(second);
  rig.drain();
}

TEST(Scheduler, ReleasesNothingBeforeTheLastStepIsBack) {
  Rig rig(options_of(100, 4, 20));
  OracleSink& sink = rig.add(counted(5), 10);
  const StepPlan first = rig.plan();
  const StepPlan second = rig.plan();

  rig.scheduler.cancel(RequestId{1});

  EXPECT_EQ(sink.finish, FinishReason::cancelled);
  EXPECT_EQ(rig.used_pages(), 1);
  rig.complete(first);
  EXPECT_EQ(rig.used_pages(), 1);
  rig.complete(second);
  EXPECT_EQ(rig.used_pages(), 0);
  EXPECT_TRUE(rig.scheduler.idle());
}

TEST(Scheduler, PreemptsTheYoungestAndFinishesBoth) {
  Rig rig(options_of(6, 4, 64));
  OracleSink& old = rig.add(counted(30), 40);
  OracleSink& young = rig.add(counted(30, 50), 40);

  rig.drain();

  EXPECT_EQ(old.tokens.size(), 40U);
  EXPECT_EQ(young.tokens.size(), 40U);
  EXPECT_GT(rig.scheduler.stats().preemptions, 0);
}

TEST(Scheduler, AMoreUrgentRequestTakesTheRowOfALessUrgentOne) {
  Rig rig(options_of(60, 1, 64));
  OracleSink& slow = rig.add(counted(10), 30);
  for (int i = 0; i < 5; ++i) rig.step();
  Request urgent = rig.request(counted(10, 40), 2);
  urgent.priority = -1;
  OracleSink& fast = rig.add(std::move(urgent));

  while (!fast.finish) rig.step();

  EXPECT_FALSE(slow.finish.has_value());
  rig.drain();
  EXPECT_EQ(slow.tokens.size(), 30U);
}

TEST(Scheduler, SharesTheMachineBetweenClients) {
  Rig rig(options_of(400, 1, 64));
  std::vector<OracleSink*> greedy;
  for (int i = 0; i < 20; ++i) {
    Request request = rig.request(counted(20, i), 10);
    request.client = ClientId{1};
    greedy.push_back(&rig.add(std::move(request)));
  }
  while (!greedy[2]->finish) rig.step();
  Request other = rig.request(counted(20, 60), 10);
  other.client = ClientId{2};
  OracleSink& modest = rig.add(std::move(other));

  while (!modest.finish) rig.step();

  EXPECT_FALSE(greedy[5]->finish.has_value());  // a queue without clients would have served all 20 first
  rig.drain();
}

TEST(Scheduler, AWindowGroupHoldsNoMoreThanItsWindow) {
  EngineOptions options = options_of(400, 2, 64);
  options.groups = {{GroupSpec::Kind::full, 0, 16}, {GroupSpec::Kind::window, 64, 16}};
  Rig rig(options);
  rig.add(counted(1000), 200);

  for (int i = 0; i < 120; ++i) rig.step();

  EXPECT_LE(rig.used_pages(), (1000 + 200 + 15) / 16 + 64 / 16 + 2);
  rig.drain();
  OracleSink& again = rig.add(counted(1000), 2);
  rig.drain();
  EXPECT_EQ(again.cached_tokens, 992);  // whole pages of the prompt; the window left the next one while decoding
}

TEST(Scheduler, ARecurrentGroupMatchesAtSnapshots) {
  EngineOptions options = options_of(100, 2, 50);
  options.groups = {{GroupSpec::Kind::full, 0, 16}, {GroupSpec::Kind::recurrent, 0, 64}};
  Rig rig(options);
  rig.add(counted(90), 3);
  rig.drain();

  OracleSink& longer = rig.add(counted(99), 3);
  rig.drain();
  std::vector<int32_t> other = counted(70);
  other.push_back(3);
  OracleSink& shorter = rig.add(other, 3);
  rig.drain();

  EXPECT_EQ(longer.cached_tokens, 80);  // the last page edge of the first prompt
  EXPECT_EQ(shorter.cached_tokens, 64);
}

EngineOptions recurrent_options(int rows, int step_tokens) {
  EngineOptions options = options_of(100, rows, step_tokens);
  options.groups = {{GroupSpec::Kind::full, 0, 16}, {GroupSpec::Kind::recurrent, 0, 512, 3}};
  return options;
}

/// 40 tokens that many requests begin with, then some of its own.
std::vector<int32_t> with_system_prompt(int own) {
  std::vector<int32_t> tokens = counted(40);
  for (int i = 0; i < 30; ++i) tokens.push_back((own + i) % 100);
  return tokens;
}

TEST(Scheduler, TheSecondUseOfASharedPromptSavesTheStateWhereTextsPart) {
  Rig rig(recurrent_options(2, 50));
  std::vector<int> cached;
  for (int own = 50; own < 53; ++own) {
    OracleSink& sink = rig.add(with_system_prompt(own), 2);
    rig.drain();
    cached.push_back(sink.cached_tokens);
  }

  EXPECT_EQ(cached, (std::vector<int>{0, 0, 32}));
}

TEST(Scheduler, ABurstComputesASharedPromptAtMostTwice) {
  Rig rig(recurrent_options(8, 200));
  std::vector<OracleSink*> sinks;
  for (int own = 50; own < 58; ++own) sinks.push_back(&rig.add(with_system_prompt(own), 2));
  rig.drain();

  int cached = 0;
  for (const OracleSink* sink : sinks) cached += sink->cached_tokens;
  EXPECT_EQ(cached, 6 * 32);
}

TEST(Scheduler, AConversationGoesOnFromTheStateBeforeItsLastAnswer) {
  Rig rig(recurrent_options(2, 50));
  std::vector<int32_t> talk = counted(60);
  std::vector<int> cached;
  for (int turn = 0; turn < 3; ++turn) {
    OracleSink& sink = rig.add(talk, 30);
    rig.drain();
    cached.push_back(sink.cached_tokens);
    talk.insert(talk.end(), sink.tokens.begin(), sink.tokens.end());
    for (int i = 0; i < 10; ++i) talk.push_back(i);
  }

  EXPECT_EQ(cached, (std::vector<int>{0, 48, 96}));
}

TEST(Scheduler, ASnapshotThatFindsNoMemoryIsDoneWithout) {
  EngineOptions options = recurrent_options(1, 50);
  options.pages = 6;
  Rig rig(options);

  OracleSink& sink = rig.add(counted(80), 8);
  rig.drain();

  EXPECT_EQ(sink.tokens.size(), 8U);
  EXPECT_EQ(rig.used_pages(), 0);
}

TEST(Scheduler, EndsWhatIsTooLate) {
  Rig rig(options_of(100, 1, 50));
  Request request = rig.request(counted(10), 1000);
  request.deadline_us = 50;
  OracleSink& sink = rig.add(std::move(request));

  EXPECT_EQ(rig.scheduler.expire(10), 50);
  rig.step();
  EXPECT_EQ(rig.scheduler.expire(50), std::nullopt);

  EXPECT_EQ(sink.finish, FinishReason::deadline);
  EXPECT_TRUE(rig.scheduler.idle());
}

TEST(Scheduler, DoesNotStopBeforeMinTokens) {
  Rig rig(options_of(100, 1, 50));
  Request request = rig.request(counted(10), 20);
  request.end_tokens = counted(100);
  request.min_tokens = 6;
  OracleSink& sink = rig.add(std::move(request));

  rig.drain();

  EXPECT_EQ(sink.tokens.size(), 7U);
  EXPECT_EQ(sink.finish, FinishReason::stop);
}

/// The texts that requests get when nobody is beside them and nothing happens; adds how many steps that takes.
std::vector<std::vector<int32_t>> undisturbed(const EngineOptions& options, const std::vector<Request>& requests,
                                              int64_t* steps = nullptr) {
  std::vector<std::vector<int32_t>> texts;
  for (const Request& request : requests) {
    Rig alone(options);
    OracleSink& sink = alone.add(alone.request(request.prompt, request.max_tokens));
    alone.drain();
    texts.push_back(sink.tokens);
    if (steps != nullptr) *steps += alone.scheduler.stats().steps;
  }
  return texts;
}

/// Before it is known, queued, in its prompt, decoding, at its last token, preempted, ended: and each time twice.
TEST(Scheduler, C3ACancelIsValidInEveryState) {
  const EngineOptions options = options_of(9, 3, 24);
  Rig sample(options);
  const std::vector<Request> requests = {sample.request(counted(40), 30), sample.request(counted(40, 30), 30),
                                         sample.request(counted(40, 60), 30)};
  const auto texts = undisturbed(options, requests);
  int cut = 0;
  int preempted = 0;
  for (int moment = 0; moment < 150; ++moment) {
    SCOPED_TRACE(moment);
    Rig rig(options);
    std::vector<OracleSink*> sinks;
    std::deque<StepPlan> in_flight;
    rig.scheduler.cancel(RequestId{2});
    for (const Request& request : requests) sinks.push_back(&rig.add(rig.request(request.prompt, request.max_tokens)));
    for (int i = 0; !rig.scheduler.idle(); ++i) {
      ASSERT_LT(i, 1000);
      if (i == moment) rig.scheduler.cancel(RequestId{2});
      if (i == moment + 1) rig.scheduler.cancel(RequestId{2});
      StepPlan plan = in_flight.size() < 2 ? rig.plan() : StepPlan{};
      if (!plan.slices.empty()) {
        in_flight.push_back(std::move(plan));
      } else if (!in_flight.empty()) {
        rig.complete(in_flight.front());
        in_flight.pop_front();
      }
    }
    rig.scheduler.cancel(RequestId{2});

    EXPECT_EQ(sinks[0]->tokens, texts[0]);
    EXPECT_EQ(sinks[2]->tokens, texts[2]);
    EXPECT_TRUE(std::equal(sinks[1]->tokens.begin(), sinks[1]->tokens.end(), texts[1].begin()));
    EXPECT_EQ(sinks[1]->wrong, "");
    EXPECT_EQ(rig.scheduler.check(), "");
    EXPECT_EQ(rig.used_pages(), 0);
    cut += *sinks[1]->finish == FinishReason::cancelled ? 1 : 0;
    preempted += rig.scheduler.stats().preemptions > 0 ? 1 : 0;
  }
  EXPECT_GT(cut, 50);
  EXPECT_LT(cut, 150);
  EXPECT_GT(preempted, 50);
}

/// Whatever the pool holds: together requests take no more steps than one after another, since the oldest goes on in
/// every step, so nobody starves and no two take pages from each other for ever.
TEST(Scheduler, C4RequestsThatFightForPagesAllEnd) {
  int64_t preemptions = 0;
  for (int pages = 2; pages <= 64; pages += pages < 8 ? 1 : 7) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE(testing::Message() << pages << " pages, seed " << seed);
      const EngineOptions options = options_of(pages, 8, 16);
      std::mt19937_64 random(seed);
      Rig together(options);
      const int most = together.scheduler.max_sequence_tokens();
      std::vector<Request> requests;
      for (int i = 0; i < 12; ++i) {
        const int prompt = 1 + static_cast<int>(random() % static_cast<uint64_t>(most - 1));
        requests.push_back(together.request(counted(prompt, i * 7), most - prompt));
      }
      int64_t alone_steps = 0;
      const std::vector<std::vector<int32_t>> texts = undisturbed(options, requests, &alone_steps);

      std::vector<OracleSink*> sinks;
      for (Request& request : requests) sinks.push_back(&together.add(std::move(request)));
      together.drain();

      for (size_t i = 0; i < sinks.size(); ++i) EXPECT_EQ(sinks[i]->tokens, texts[i]) << i;
      EXPECT_LE(together.scheduler.stats().steps, alone_steps);
      preemptions += together.scheduler.stats().preemptions;
    }
  }
  EXPECT_GT(preemptions, 100);
}

/// What fits ends, what does not is known before it waits.
TEST(Scheduler, C5EveryLengthEndsOrIsRefused) {
  for (int pages = 1; pages <= 5; ++pages) {
    Rig rig(options_of(pages, 2, 16));
    const int most = rig.scheduler.max_sequence_tokens();
    EXPECT_EQ(most, pages * 16);
    for (int length = 1; length <= most + 2; ++length) {
      EXPECT_EQ(rig.scheduler.fits(rig.request(counted(length), 3)), length < most) << length;
      if (length >= most) continue;
      OracleSink& sink = rig.add(counted(length), 3);
      rig.drain();
      EXPECT_EQ(sink.tokens.size(), static_cast<size_t>(std::min(3, most - length)));
    }
  }
}

TEST(Scheduler, KnowsWhatCanNeverFit) {
  Rig rig(options_of(4, 1, 50));

  EXPECT_EQ(rig.scheduler.max_sequence_tokens(), 64);
  EXPECT_TRUE(rig.scheduler.fits(rig.request(counted(63), 10)));
  EXPECT_FALSE(rig.scheduler.fits(rig.request(counted(64), 1)));
  OracleSink& sink = rig.add(counted(60), 10);
  rig.drain();
  EXPECT_EQ(sink.tokens.size(), 4U);
  EXPECT_EQ(sink.finish, FinishReason::length);
}

TEST(Scheduler, AMaskThatComesLateOnlyDelaysItsStep) {
  Rig rig(options_of(100, 4, 50));
  Request request = rig.request(counted(10), 3);
  request.mask = std::make_shared<OracleMask>();
  OracleSink& masked = rig.add(std::move(request));
  ASSERT_EQ(rig.scheduler.take_mask_queries().size(), 1U);

  const StepPlan plan = rig.plan();

  EXPECT_TRUE(plan.slices.at(0).masked);
  EXPECT_TRUE(rig.scheduler.take_masks().empty());
  rig.scheduler.give_mask(RequestId{1}, TokenMask::Words{1U << 5, 0, 0, 0});
  const std::vector<StepMasks> masks = rig.scheduler.take_masks();
  ASSERT_EQ(masks.size(), 1U);
  EXPECT_EQ(masks[0].step, plan.step);
  rig.scheduler.commit(rig.device.run(plan, {{masks[0].rows[0].row, masks[0].rows[0].words}}), 5);
  EXPECT_EQ(masked.tokens, std::vector<int32_t>{5});
  rig.scheduler.cancel(RequestId{1});
  EXPECT_TRUE(rig.scheduler.idle());
}

}  // namespace
}  // namespace quern
