// The engine's thread: many clients at once, and instances that come and go under load. Run under the thread sanitizer
// too.
#include "engine/engine.h"

#include <atomic>
#include <future>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "base/channel.h"
#include "base/clock.h"
#include "engine/oracle_driver.h"

namespace quern {
namespace {

constexpr OracleModel model{.vocab = 24};

/// Hands its events over to the thread that waits for them.
class WaitingSink final : public EventSink {
 public:
  void deliver(TokenEvent event) override { events_.try_send(event); }
  /// Everything until the last event.
  OracleSink wait() {
    OracleSink all;
    while (!all.finish) all.deliver(*events_.receive());
    return all;
  }

 private:
  Channel<TokenEvent> events_;
};

/// A constraint that answers from a thread of its own, or from another one's call.
class ThreadedMask final : public TokenMask {
 public:
  explicit ThreadedMask(OracleConstraint constraint) : constraint_(constraint) {}
  ~ThreadedMask() override {
    if (worker_.joinable()) worker_.join();
  }
  void advance(std::vector<int32_t> tokens, std::function<void(std::optional<Words>)> done) override {
    if (worker_.joinable()) worker_.join();
    output_.insert(output_.end(), tokens.begin(), tokens.end());
    worker_ = std::thread([this, done = std::move(done)] { done(constraint_.mask(output_)); });
  }
  void rollback(int) override {}

 private:
  const OracleConstraint constraint_;
  std::vector<int32_t> output_;
  std::thread worker_;
};

EngineOptions small_options() {
  EngineOptions options;
  options.groups = {{GroupSpec::Kind::full, 0, 8}, {GroupSpec::Kind::window, 12, 8}};
  options.pages = 100;
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 24;
  options.max_model_len = 120;
  return options;
}

std::unique_ptr<Executor> oracle_executor(const EngineOptions& options, uint64_t dies_at = 0) {
  return std::make_unique<OracleExecutor>(OracleDevice(model, options.groups, options.pages, options.max_num_seqs),
                                          dies_at);
}

Request request_of(uint64_t id, std::vector<int32_t> prompt, int max_tokens, std::shared_ptr<EventSink> sink) {
  Request request;
  request.id = RequestId{id};
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sink = std::move(sink);
  return request;
}

/// One client's requests, one after another. The number that went wrong.
int run_client(Engine& engine, uint64_t client, int requests) {
  std::mt19937_64 random(client);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  int wrong = 0;
  for (int i = 0; i < requests; ++i) {
    std::vector<int32_t> prompt(size_t(pick(1, 60)), 3);
    for (size_t k = prompt.size() / 2; k < prompt.size(); ++k) prompt[k] = pick(0, model.vocab - 1);
    auto sink = std::make_shared<WaitingSink>();
    Request request = request_of(client * 1000000 + uint64_t(i), std::move(prompt), pick(1, 30), sink);
    request.client = ClientId{client};
    request.end_tokens = {pick(0, model.vocab - 1)};
    std::optional<OracleConstraint> constraint;
    if (pick(0, 3) == 0) {
      constraint = OracleConstraint{model.vocab, pick(0, 3) == 0 ? pick(0, 6) : -1};
      request.mask = std::make_shared<ThreadedMask>(*constraint);
    }
    if (pick(0, 5) == 0) request.deadline_us = now_us() + pick(0, 2000);
    const bool cancels = pick(0, 4) == 0;
    const Request copy = request;

    if (engine.submit(std::move(request)) != SubmitResult::accepted) return wrong;
    if (cancels) engine.cancel(copy.id);

    const OracleAnswer answer =
        oracle_answer(model, copy, engine.max_sequence_tokens(), constraint ? &*constraint : nullptr);
    const OracleSink got = sink->wait();
    wrong += !got.judge(copy, answer, cancels || copy.deadline_us > 0).empty();
  }
  return wrong;
}

TEST(Engine, AnswersManyClientsAtOnceEachWithItsOwnText) {
  const EngineOptions options = small_options();
  Engine engine(options, oracle_executor(options));
  std::atomic<int> wrong = 0;

  std::vector<std::thread> clients;
  for (uint64_t c = 1; c <= 12; ++c) clients.emplace_back([&, c] { wrong += run_client(engine, c, 60); });
  for (std::thread& client : clients) client.join();

  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(engine.check_drained(), "");
  EXPECT_GT(engine.stats().prefix_hits_tokens, 0);
}

TEST(Engine, InstancesComeAndGoUnderLoad) {
  for (int round = 0; round < 25; ++round) {
    EngineOptions options = small_options();
    options.depth = 1 + round % 5;
    auto engine = std::make_unique<Engine>(options, oracle_executor(options));
    std::vector<std::shared_ptr<WaitingSink>> sinks;
    for (uint64_t i = 1; i <= 40; ++i) {
      sinks.push_back(std::make_shared<WaitingSink>());
      Request request = request_of(i, std::vector<int32_t>(size_t(i), 5), 60, sinks.back());
      if (i % 3 == 0) request.mask = std::make_shared<ThreadedMask>(OracleConstraint{model.vocab, -1});
      ASSERT_EQ(engine->submit(std::move(request)), SubmitResult::accepted);
    }
    if (round % 2 == 0) sinks.front()->wait();

    engine.reset();

    for (size_t i = round % 2 == 0 ? 1 : 0; i < sinks.size(); ++i) EXPECT_TRUE(sinks[i]->wait().finish.has_value());
  }
}

// S24
TEST(Engine, FailsEverythingWhenTheDeviceDies) {
  const EngineOptions options = small_options();
  Engine engine(options, oracle_executor(options, 5));
  std::vector<std::shared_ptr<WaitingSink>> sinks;
  for (uint64_t i = 1; i <= 20; ++i) {
    sinks.push_back(std::make_shared<WaitingSink>());
    engine.submit(request_of(i, std::vector<int32_t>(30, int32_t(i)), 50, sinks.back()));
  }

  for (const auto& sink : sinks) EXPECT_EQ(sink->wait().finish, FinishReason::error);

  EXPECT_EQ(engine.check_drained(), "");
  EXPECT_TRUE(engine.stats().dead);
  EXPECT_EQ(engine.submit(request_of(99, {1}, 1, sinks[0])), SubmitResult::stopping);
}

TEST(Engine, C18RefusesWhatDoesNotFitAndWhatIsTooMuch) {
  EngineOptions options = small_options();
  options.max_num_seqs = 1;
  options.max_queued_requests = 1;
  Engine engine(options, oracle_executor(options));
  auto masked_sink = std::make_shared<WaitingSink>();
  auto sink = std::make_shared<WaitingSink>();
  // A constraint that never answers keeps its request running until it is cancelled.
  Request stuck = request_of(1, {1, 2}, 10, masked_sink);
  stuck.mask = std::make_shared<OracleMask>();

  EXPECT_EQ(engine.submit(request_of(7, std::vector<int32_t>(120, 1), 1, sink)), SubmitResult::too_long);
  EXPECT_EQ(engine.submit(std::move(stuck)), SubmitResult::accepted);
  EXPECT_EQ(engine.submit(request_of(2, {1}, 3, sink)), SubmitResult::accepted);
  EXPECT_EQ(engine.submit(request_of(3, {1}, 3, sink)), SubmitResult::queue_full);
  engine.cancel(RequestId{1});
  EXPECT_EQ(masked_sink->wait().finish, FinishReason::cancelled);
  EXPECT_EQ(sink->wait().finish, FinishReason::length);
  engine.stop_accepting();
  EXPECT_EQ(engine.submit(request_of(4, {1}, 3, sink)), SubmitResult::stopping);
  EXPECT_EQ(engine.check_drained(), "");
}

TEST(Engine, ForgetsPrefixesOnRequest) {
  const EngineOptions options = small_options();
  Engine engine(options, oracle_executor(options));
  auto sink = std::make_shared<WaitingSink>();
  engine.submit(request_of(1, std::vector<int32_t>(50, 4), 5, sink));
  sink->wait();
  EXPECT_EQ(engine.check_drained(), "");
  EXPECT_GT(engine.stats().pages_cached, 0);

  engine.reset_prefix_cache();

  EXPECT_EQ(engine.check_drained(), "");
  EXPECT_EQ(engine.stats().pages_free, options.pages);
}

}  // namespace
}  // namespace quern
