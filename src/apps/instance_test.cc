// A whole instance: a stream's bits do not depend on the others; on a GPU captured steps give the bits of eager ones,
// whatever was padded, and the CPU's text.
#include "apps/instance.h"

#include <algorithm>
#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "apps/pending.h"
#include "model/matrix_testing.h"

namespace quern {
namespace {

/// Keeps tokens and the probabilities of the tokens, which show a difference of one bit.
class Record final : public EventSink {
 public:
  void deliver(TokenEvent event) override {
    tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
    for (const auto* list : {&event.prompt_logprobs, &event.logprobs}) {
      for (const TokenLogprobs& logprobs : *list) {
        values.push_back(logprobs.chosen);
        for (const auto& [token, value] : logprobs.top) values.push_back(value);
      }
    }
    cached_tokens = event.cached_tokens;
    if (!event.finish) return;
    error = event.error;
    ended.try_send(0);
  }

  std::vector<int32_t> tokens;
  std::vector<float> values;
  int cached_tokens = 0;
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
class Cached : public ::testing::TestWithParam<std::string> {};
class Place : public ::testing::TestWithParam<const char*> {};

/// Many sizes of steps, powers of two or not, and every row is somebody's sometime.
TEST_P(Cpu, C22StreamsTogetherGiveTheBitsOfOneAtATime) {
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

InstanceOptions cpu_options(const std::string& golden, int64_t kv_bytes) {
  InstanceOptions options = options_of(golden, "auto", false);
  options.device = "cpu";
  options.kv_cache_memory_bytes = kv_bytes;
  options.max_model_len = "128";
  options.hf_overrides = R"({"n_positions": 128})";  // GPT-2's
  return options;
}

/// A greedy request with all that is asked about its tokens, the prompt's included.
Request scored(const Instance& instance, int length, int seed) {
  Request request;
  for (int t = 0; t < length; ++t) request.prompt.push_back((7 * seed + 11 * t) % instance.spec().vocab);
  request.max_tokens = 36;
  request.sampling.temperature = 0;
  request.sampling.logprobs = 3;
  request.sampling.prompt_logprobs = 3;
  return request;
}

Records answers(Instance& instance, const std::vector<Request>& requests) {
  static uint64_t last_id = 1000;
  Records records;
  for (Request request : requests) {
    request.id = RequestId{++last_id};
    records.push_back(std::make_shared<Record>());
    request.sink = records.back();
    EXPECT_EQ(instance.engine->submit(std::move(request)), SubmitResult::accepted);
  }
  for (const auto& record : records) record->ended.receive();
  return records;
}

void expect_equal(const Records& actual, const Records& wanted) {
  ASSERT_EQ(actual.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(actual[i]->error, "");
    EXPECT_EQ(actual[i]->tokens, wanted[i]->tokens);
    EXPECT_EQ(actual[i]->values, wanted[i]->values);
  }
}

/// Cold, from the cache, from a part of a page, under another salt, together in a pool that is too small, and after
/// the cache was emptied: always the bits of a model without a cache, at lengths around the edges of pages. Prompts
/// whose tokens are scored are computed anew.
TEST_P(Cached, C14C15CachedPromptsGiveTheBitsOfComputedOnes) {
  InstanceOptions without = cpu_options(GetParam(), int64_t{8} << 20);
  without.prefix_caching = false;
  const auto plain = make_instance(without);
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  std::vector<Request> requests;
  for (const int length : {15, 16, 17, 33, 60, 90}) requests.push_back(scored(**plain, length, length));
  requests.push_back(requests.back());
  requests.back().prompt[70] = 1;  // parts from the one before inside a page
  const size_t texts = requests.size();
  for (size_t i = 0; i < texts; ++i) {
    requests.push_back(requests[i]);
    requests[i].sampling.prompt_logprobs = -1;
  }
  const Records wanted = answers(**plain, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    const size_t of_prompt = i < texts ? 0 : requests[i].prompt.size() - 1;
    EXPECT_EQ(wanted[i]->values.size(), (of_prompt + wanted[i]->tokens.size()) * 4) << i;
  }

  // The least that starts, so that they push each other out.
  int64_t pages = 1;
  while (!open_model(cpu_options(GetParam(), pages * (*plain)->memory.kv_page_bytes)).ok()) ++pages;
  const auto small = make_instance(cpu_options(GetParam(), pages * (*plain)->memory.kv_page_bytes));
  ASSERT_TRUE(small.ok()) << small.error().message;
  int cached = 0;
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < texts; ++i) {
      expect_equal(answers(**small, {requests[i]}), {wanted[i]});
      const Records again = answers(**small, {requests[i]});
      expect_equal(again, {wanted[i]});
      cached += again[0]->cached_tokens;
      Request salted = requests[i];
      salted.cache_salt = static_cast<uint64_t>(round) * 100 + i + 1;
      const Records apart = answers(**small, {salted});
      expect_equal(apart, {wanted[i]});
      EXPECT_EQ(apart[0]->cached_tokens, 0);
    }
    expect_equal(answers(**small, requests), wanted);
    if (round == 1) (*small)->engine->reset_prefix_cache();
  }
  EXPECT_GT((*small)->engine->stats().preemptions, 0);
  if (!is_recurrent((*small)->spec())) {  // whose states need more room; model/recurrent_test.cc gives it
    EXPECT_GE(cached, 3 * (15 + 16 + 32 + 48 + 80 + 80));
  }
  EXPECT_EQ((*small)->engine->check_drained(), "");
}

/// Every row is taken by the largest request there can be, with all the numbers a client may ask for.
/// What load_instance says of a model with random weights on the CPU, of which none may be made.
std::string memory_refusal(const std::string& overrides, int64_t kv_bytes) {
  InstanceOptions options = options_of("llama", "auto", true);
  options.device = "cpu";
  options.hf_overrides = overrides;
  options.kv_cache_memory_bytes = kv_bytes;
  const auto loaded = load_instance(options);
  return loaded.ok() ? "accepted" : loaded.error().message;
}

constexpr const char* larger_than_any_machine = R"({"hidden_size": 65536, "intermediate_size": 262144,
    "num_attention_heads": 512, "num_key_value_heads": 8, "head_dim": 128, "num_hidden_layers": 1000})";

TEST(Memory, WeightsThatDoNotFitAreRefusedBeforeTheyAreRead) {
  const auto says = ::testing::ContainsRegex(
      R"(^not enough memory: .*weights.* [0-9.]+ MiB .*free.*; free some memory, or take a smaller model$)");

  EXPECT_THAT(memory_refusal(larger_than_any_machine, 0), says);
  EXPECT_THAT(memory_refusal(larger_than_any_machine, int64_t{64} << 20), says);
}

TEST(Memory, ACacheThatDoesNotFitIsRefusedWithTheNumbers) {
  EXPECT_THAT(memory_refusal("", int64_t{1} << 42),
              ::testing::ContainsRegex(
                  R"(^not enough memory: 41943[0-9]+\.[0-9] MiB are needed \(weights [0-9.]+, KV cache 4194304.0, )"
                  R"(states 0.0, executor [0-9.]+\) and [0-9.]+ MiB are free; lower --kv-cache-memory-bytes)"));
  EXPECT_EQ(memory_refusal("", int64_t{64} << 20), "accepted");
}

TEST(Memory, ACacheOfLessThanAPageIsRefused) {
  EXPECT_THAT(memory_refusal("", 100),
              ::testing::ContainsRegex("^no room for a KV cache: 100 bytes hold less than one page of [0-9]+ bytes for "
                                       "each of 1 layer groups; raise --kv-cache-memory-bytes$"));
}

TEST_P(Cpu, C17TheWorstRequestsTogetherFitIntoThePlan) {
  InstanceOptions options = cpu_options(GetParam(), int64_t{32} << 20);
  options.max_num_seqs = 6;
  options.max_num_batched_tokens = 64;
  const auto instance = make_instance(options);
  ASSERT_TRUE(instance.ok()) << instance.error().message;
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) {
    Request request = scored(**instance, i % 2 == 0 ? 127 : 64, i);
    request.max_tokens = request.min_tokens = 128 - static_cast<int32_t>(request.prompt.size());
    request.sampling.logprobs = request.sampling.prompt_logprobs = 20;
    request.sampling.temperature = 1;
    request.sampling.seed = static_cast<uint64_t>(i);
    request.sampling.presence_penalty = 1;
    for (int32_t id = 0; id < 50; ++id) request.sampling.logit_bias.emplace_back(id, 1.0F);
    requests.push_back(request);
  }

  const Records records = answers(**instance, requests);

  for (size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i]->error, "");
    EXPECT_EQ(records[i]->tokens.size() + requests[i].prompt.size(), 128U);
  }
  EXPECT_EQ((*instance)->engine->check_drained(), "");
}

/// Set while it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

class Death : public ::testing::TestWithParam<int> {};

TEST_P(Death, IsToldToEveryStreamOnce) {
  const Variable fails("QUERN_DEVICE_FAILS_AFTER", std::to_string(GetParam()).c_str());
  InstanceOptions options = options_of("llama", "auto", false);
  options.device = "cpu";
  options.max_num_seqs = 4;  // some wait when it happens
  Channel<std::string> reasons;
  options.on_dead = [&](const std::string& reason) { reasons.try_send(std::string(reason)); };
  const auto instance = make_instance(options);
  ASSERT_TRUE(instance.ok()) << instance.error().message;
  std::vector<std::shared_ptr<Record>> records;
  for (uint64_t i = 1; i <= 9; ++i) {
    Request request;
    request.id = RequestId{i};
    request.prompt = {1, 2, static_cast<int32_t>(i)};
    request.max_tokens = 100;
    const auto record = std::make_shared<Record>();
    request.sink = record;
    const SubmitResult result = (*instance)->engine->submit(std::move(request));
    if (result == SubmitResult::stopping) break;  // it is dead already
    ASSERT_EQ(result, SubmitResult::accepted);
    records.push_back(record);
  }

  EXPECT_EQ(reasons.receive(), "the device was told to fail");

  ASSERT_FALSE(records.empty());
  for (const auto& record : records) {
    record->ended.receive();
    // The second is said to a request that was submitted while the device died.
    EXPECT_THAT(record->error, ::testing::AnyOf("the device was told to fail", "the device does not work any more"));
    EXPECT_LT(record->tokens.size(), 100U);
  }
  EXPECT_EQ(records[0]->error, "the device was told to fail");
  EXPECT_EQ((*instance)->engine->check_drained(), "");
  EXPECT_EQ(reasons.size(), 0U);
  for (const auto& record : records) EXPECT_EQ(record->ended.size(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Instance, Death, ::testing::Range(1, 20));

/// Every row and every page is somebody's, an odd number of sequences waits, and some are taken back and begin again.
TEST_P(Place, FillsEveryRowAndPage) {
  InstanceOptions options = options_of("llama", "auto", false);
  options.device = GetParam();
  const auto device = make_device(options.device == "cpu" ? DeviceKind::cpu : DeviceKind::cuda, {});
  if (!device.ok()) GTEST_SKIP() << device.error().message << "; the case of the CPU stands in";
  options.max_num_seqs = 13;
  options.max_num_batched_tokens = 64;
  options.kv_cache_memory_bytes = int64_t{320} << 10;
  const auto instance = make_instance(options);
  ASSERT_TRUE(instance.ok()) << instance.error().message;
  const int longest = (*instance)->engine->max_sequence_tokens();
  const int tokens = longest - 20;
  ASSERT_LT((*instance)->memory.kv_tokens, options.max_num_seqs * tokens / 2);
  std::vector<std::shared_ptr<Record>> records;
  for (int i = 0; i < 29; ++i) {
    Request request;
    request.id = RequestId{static_cast<uint64_t>(i + 1)};
    request.prompt.assign(static_cast<size_t>(1 + i * tokens / 40), 3 + i);
    request.max_tokens = tokens - i * tokens / 40;
    request.min_tokens = request.max_tokens;
    request.sink = records.emplace_back(std::make_shared<Record>());
    ASSERT_EQ((*instance)->engine->submit(std::move(request)), SubmitResult::accepted);
  }
  for (size_t i = 0; i < records.size(); ++i) {
    records[i]->ended.receive();
    EXPECT_EQ(records[i]->error, "") << i;
    EXPECT_EQ(static_cast<int>(records[i]->tokens.size()), tokens - static_cast<int>(i) * tokens / 40) << i;
  }
  EXPECT_GT((*instance)->engine->stats().preemptions, 0);
  EXPECT_EQ((*instance)->engine->check_drained(), "");
}

INSTANTIATE_TEST_SUITE_P(Instance, Place, ::testing::Values("cpu", "cuda"));

class Gpu : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto gpu = make_device(DeviceKind::cuda, {});
    if (!gpu.ok())
      GTEST_SKIP() << gpu.error().message << "; only a GPU captures steps, and the Cpu tests have its streams";
  }
};

TEST_P(Gpu, C10CapturedStepsGiveTheBitsOfEagerOnes) {
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

TEST_P(Gpu, C22AStreamAloneGivesTheBitsOfOneAmongMany) {
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

INSTANTIATE_TEST_SUITE_P(Models, Cached, ::testing::ValuesIn(testing::golden_models()),
                         [](const auto& test) { return test.param; });
INSTANTIATE_TEST_SUITE_P(Models, Cpu, ::testing::Values("llama3_rope", "qwen3_moe", "gemma3", "gemma4_e"),
                         [](const auto& test) { return std::string(test.param); });
INSTANTIATE_TEST_SUITE_P(Models, Gpu, ::testing::Values("llama3_rope", "qwen3_moe", "gemma3", "gemma4_e"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace quern
