// A whole instance: a stream's bits do not depend on the others; on a GPU captured steps give the bits of eager ones,
// whatever was padded, and the CPU's text.
#include "apps/instance.h"

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "apps/pending.h"

namespace quern {
namespace {

/// Keeps tokens and the probabilities of the tokens, which show a difference of one bit.
class Record final : public EventSink {
 public:
  void deliver(TokenEvent event) override {
    tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
    for (const TokenLogprobs& logprobs : event.logprobs) {
      values.push_back(logprobs.chosen);
      for (const auto& [token, value] : logprobs.top) values.push_back(value);
    }
    if (!event.finish) return;
    error = event.error;
    ended.try_send(0);
  }

  std::vector<int32_t> tokens;
  std::vector<float> values;
  std::string error;
  Channel<int> ended;
};

using Records = std::vector<std::shared_ptr<Record>>;

InstanceOptions options_of(const std::string& golden, const std::string& dtype, bool eager) {
  InstanceOptions options;
  options.model = QUERN_SOURCE_DIR "/tests/golden/" + golden;
  options.load_format = "dummy:bf16";  // the folder's configuration; it has no tokenizer
  options.device = "cuda";
  options.dtype = dtype;
  options.enforce_eager = eager;
  options.max_model_len = "auto";
  options.kv_cache_memory_bytes = int64_t{64} << 20;
  options.max_num_seqs = 40;
  options.quiet = true;
  return options;
}

/// `count` streams that begin one after the other and end at different lengths, so that many sizes of steps occur.
Records run(const InstanceOptions& options, int count) {
  auto instance = make_instance(options);
  EXPECT_TRUE(instance.ok()) << instance.error().message;
  Records records;
  for (int i = 0; i < count; ++i) {
    Request request;
    request.id = RequestId{static_cast<uint64_t>(i + 1)};
    for (int t = 0; t < 5 + 3 * i; ++t) request.prompt.push_back((7 * i + 11 * t) % (*instance)->spec().vocab);
    request.max_tokens = 40 + i;
    request.min_tokens = request.max_tokens;
    request.sampling.temperature = i % 2 == 0 ? 0.0F : 0.8F;
    request.sampling.seed = static_cast<uint64_t>(i);
    request.sampling.logprobs = 3;
    records.push_back(std::make_shared<Record>());
    request.sink = records.back();
    EXPECT_EQ((*instance)->engine->submit(std::move(request)), SubmitResult::accepted);
  }
  for (const auto& record : records) record->ended.receive();
  EXPECT_EQ((*instance)->engine->check_drained(), "");
  return records;
}

class Cpu : public ::testing::TestWithParam<const char*> {};

/// Many sizes of steps, powers of two or not, and every row is somebody's sometime.
TEST_P(Cpu, StreamsTogetherGiveTheBitsOfOneAtATime) {
  InstanceOptions options = options_of(GetParam(), "auto", false);
  options.device = "cpu";
  const Records together = run(options, 21);
  options.max_num_seqs = 1;
  const Records alone = run(options, 21);
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(together[i]->error, "");
    EXPECT_EQ(together[i]->tokens, alone[i]->tokens) << i;
    EXPECT_EQ(together[i]->values, alone[i]->values) << i;
  }
}

class Gpu : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto gpu = make_device(DeviceKind::cuda, {});
    if (!gpu.ok()) GTEST_SKIP() << gpu.error().message;
  }
};

TEST_P(Gpu, CapturedStepsGiveTheBitsOfEagerOnes) {
  for (const char* dtype : {"float32", "float16", "bfloat16"}) {
    SCOPED_TRACE(dtype);
    InstanceOptions eager = options_of(GetParam(), dtype, true);
    InstanceOptions captured = options_of(GetParam(), dtype, false);
    // The same kernels whatever a step is padded to.
    eager.batch_invariant = captured.batch_invariant = true;
    const Records wanted = run(eager, 21);
    const Records actual = run(captured, 21);
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(actual[i]->error, "");
      EXPECT_EQ(actual[i]->tokens, wanted[i]->tokens) << i;
      EXPECT_EQ(actual[i]->values, wanted[i]->values) << i;
    }
  }
}

TEST_P(Gpu, AStreamAloneGivesTheBitsOfOneAmongMany) {
  InstanceOptions options = options_of(GetParam(), "bfloat16", false);
  options.batch_invariant = true;
  const Records many = run(options, 21);
  const Records alone = run(options, 1);
  EXPECT_EQ(alone[0]->tokens, many[0]->tokens);
  EXPECT_EQ(alone[0]->values, many[0]->values);
}

TEST_P(Gpu, FloatsGiveTheTextOfTheCpu) {
  InstanceOptions cpu = options_of(GetParam(), "float32", false);
  cpu.device = "cpu";
  cpu.dtype = "auto";
  const Records wanted = run(cpu, 1);
  InstanceOptions gpu = options_of(GetParam(), "float32", false);
  gpu.kv_cache_dtype = "float16";
  const Records actual = run(gpu, 1);
  EXPECT_EQ(actual[0]->tokens, wanted[0]->tokens);
}

INSTANTIATE_TEST_SUITE_P(Models, Cpu, ::testing::Values("llama3_rope", "qwen3_moe", "gemma3"),
                         [](const auto& test) { return std::string(test.param); });
INSTANTIATE_TEST_SUITE_P(Models, Gpu, ::testing::Values("llama3_rope", "qwen3_moe", "gemma3"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace quern
