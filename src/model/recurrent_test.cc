// Whatever happens to the sequences of a model with recurrent layers, their texts stay the same.
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/loader.h"
#include "base/channel.h"
#include "engine/engine.h"
#include "engine/model_executor.h"

namespace quern {
namespace {

constexpr int answer_tokens = 40;

/// Hands its events over to the thread that waits for them.
class WaitingSink final : public EventSink {
 public:
  void deliver(TokenEvent event) override { events_.try_send(event); }
  std::optional<TokenEvent> next() { return events_.receive(); }

 private:
  Channel<TokenEvent> events_;
};

struct Answer {
  std::vector<int32_t> tokens;
  int cached_tokens = 0;
};

struct Setting {
  int rows = 1;
  int step_tokens = 512;
  int pages = 4000;
  bool prefix_caching = false;
};

class Recurrent : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    device_ = make_device(DeviceKind::cpu, {.threads = 2}).value();
    const auto checkpoint = Checkpoint::open(std::string(QUERN_SOURCE_DIR "/tests/golden/") + GetParam());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    auto model = load_model(**checkpoint, *device_);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_.emplace(std::move(model).value());
    // Texts that share 70 tokens, or none.
    for (int text = 0; text < 6; ++text) {
      std::vector<int32_t>& prompt = prompts_.emplace_back();
      for (int i = 0; i < 80 + 7 * text; ++i) {
        const int own = text < 4 && i < 70 ? 0 : text + 1;
        prompt.push_back((i * i + 31 * own * (i + 1)) % (model_->spec.vocab - 3) + 3);
      }
    }
    start({});
    for (const auto& prompt : prompts_) whole_.push_back(ask({prompt})[0].tokens);
  }

  void start(const Setting& setting) {
    engine_.reset();
    ModelExecutorOptions executor;
    executor.rows = setting.rows;
    executor.max_tokens = setting.step_tokens;
    executor.max_model_len = 200;
    executor.pages = setting.pages;
    executor.vocab = model_->spec.vocab;
    executor.kv = kv_layout(model_->spec, dtype_bytes(executor.kv_dtype));
    EngineOptions options;
    options.groups = groups_of(executor.kv);
    options.pages = setting.pages;
    options.max_num_seqs = setting.rows;
    options.max_num_batched_tokens = setting.step_tokens;
    options.max_model_len = executor.max_model_len;
    options.prefix_caching = setting.prefix_caching;
    auto made = make_model_executor(model_->decoder, *device_, executor);
    ASSERT_TRUE(made.ok()) << made.error().message;
    engine_ = std::make_unique<Engine>(options, std::move(made).value());
  }

  /// All at once.
  std::vector<Answer> ask(const std::vector<std::vector<int32_t>>& prompts) {
    std::vector<std::shared_ptr<WaitingSink>> sinks;
    for (const auto& prompt : prompts) {
      Request request;
      request.id = RequestId{++ids_};
      request.prompt = prompt;
      request.sampling.temperature = 0;
      request.max_tokens = answer_tokens;
      request.sink = sinks.emplace_back(std::make_shared<WaitingSink>());
      EXPECT_EQ(engine_->submit(std::move(request)), SubmitResult::accepted);
    }
    std::vector<Answer> answers;
    for (const auto& sink : sinks) {
      Answer& answer = answers.emplace_back();
      while (const auto event = sink->next()) {
        answer.tokens.insert(answer.tokens.end(), event->tokens.begin(), event->tokens.end());
        answer.cached_tokens = event->cached_tokens;
        EXPECT_EQ(event->error, "");
        if (event->finish) break;
      }
    }
    EXPECT_EQ(engine_->check_drained(), "");
    return answers;
  }

  void expect_whole(const std::vector<Answer>& answers) const {
    for (size_t i = 0; i < whole_.size(); ++i) EXPECT_EQ(answers[i].tokens, whole_[i]) << "text " << i;
  }

  std::unique_ptr<Device> device_;
  std::optional<LoadedModel> model_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::vector<int32_t>> prompts_;
  std::vector<std::vector<int32_t>> whole_;  // each text alone, whole, from nothing
  uint64_t ids_ = 0;
};

TEST_P(Recurrent, InSmallPiecesBesideOthers) {
  start({.rows = 4, .step_tokens = 13});
  expect_whole(ask(prompts_));
}

TEST_P(Recurrent, FromSnapshotsOfSharedPrefixes) {
  start({.rows = 4, .step_tokens = 64, .prefix_caching = true});
  expect_whole(ask(prompts_));
  const std::vector<Answer> again = ask(prompts_);

  expect_whole(again);
  for (size_t i = 0; i < again.size(); ++i) {
    // Of those that began side by side, one may have computed under the nodes of another.
    const int most = static_cast<int>(prompts_[i].size() - 1) / 16 * 16;
    EXPECT_LE(again[i].cached_tokens, most);
    EXPECT_GE(again[i].cached_tokens, i < 4 ? 64 : most);
  }
}

TEST_P(Recurrent, AConversationGoesOn) {
  start({.rows = 1, .step_tokens = 64, .prefix_caching = true});
  std::vector<int32_t> talk = prompts_[0];
  talk.insert(talk.end(), whole_[0].begin(), whole_[0].end());
  const std::vector<int32_t> fresh = ask({talk})[0].tokens;
  engine_->reset_prefix_cache();
  ask({prompts_[0]});

  const Answer answer = ask({talk})[0];

  EXPECT_EQ(answer.tokens, fresh);
  EXPECT_EQ(answer.cached_tokens, 64);
}

TEST_P(Recurrent, AfterPreemption) {
  int64_t preemptions = 0;
  for (const bool caching : {false, true}) {
    start({.rows = 4, .step_tokens = 64, .pages = 22, .prefix_caching = caching});
    expect_whole(ask(prompts_));
    preemptions += engine_->stats().preemptions;
  }
  EXPECT_GT(preemptions, 0);
}

INSTANTIATE_TEST_SUITE_P(Families, Recurrent,
                         ::testing::Values("qwen3_5", "qwen3_5_moe", "qwen3_next", "lfm2", "lfm2_moe"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace quern
