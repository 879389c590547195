// The profile of steps whose operations, sizes and counts are known from the model's configuration.
#include "apps/measure/step_profile.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <string>

namespace quern {
namespace {

InstanceOptions options_of(const std::string& golden) {
  InstanceOptions options;
  options.model = QUERN_SOURCE_DIR "/tests/golden/" + golden;
  options.load_format = "dummy:f32";
  options.device = "cpu";
  options.threads = 1;
  options.kv_cache_memory_bytes = int64_t{16} << 20;
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 96;
  options.quiet = true;
  return options;
}

std::map<std::string, OperationTime> by_name(const StepOperations& step) {
  std::map<std::string, OperationTime> named;
  for (const OperationTime& operation : step.operations) named[operation.name] = operation;
  return named;
}

constexpr MachineLimits limits{1e9, 1e9};

TEST(StepProfile, CountsTheOperationsBytesAndArithmeticOfAStep) {
  const auto instance = load_instance(options_of("llama"));
  ASSERT_TRUE(instance.ok()) << instance.error().message;
  const DecoderSpec& spec = (*instance)->spec();
  const auto& attention = std::get<AttentionSpec>(spec.layers[0].mixer);
  const auto steps = parse_steps("3@40+2x20");
  ASSERT_TRUE(steps.ok());
  const auto profiles = profile_steps(**instance, *steps, limits, 0.0);
  ASSERT_TRUE(profiles.ok()) << profiles.error().message;
  const StepOperations& all = (*profiles)[0].operations;
  const auto named = by_name(all);

  const auto layers = static_cast<int>(spec.layers.size());
  const int tokens = 3 + 2 * 20;
  const int hidden = std::get<FfnSpec>(spec.layers[0].ffn).hidden;
  const OperationTime& gate_up = named.at("linear " + std::to_string(2 * hidden) + "x" + std::to_string(spec.dim));
  EXPECT_EQ(gate_up.calls, layers);
  EXPECT_DOUBLE_EQ(gate_up.flops, 2.0 * tokens * 2 * hidden * spec.dim * layers);
  // Weights lie in panels of so many rows as the processor's kernels take.
  const auto weights = static_cast<double>(2 * packed_bytes(DeviceKind::cpu, FormatId::f32, hidden, spec.dim));
  EXPECT_GE(weights, 4.0 * 2 * hidden * spec.dim);
  EXPECT_DOUBLE_EQ(gate_up.bytes, layers * (weights + 4.0 * (tokens * spec.dim + tokens * 2.0 * hidden)));

  // A token at position p sees p + 1 tokens; a segment's keys and values (of two bytes) are read once.
  const double seen = 3 * 41 + 2 * 20;
  const double pairs = 3 * 41 + 2 * (20 * 21 / 2);
  const int kv_dims = 2 * attention.kv_heads * attention.head_dim;
  const int q_dims = attention.heads * attention.head_dim;
  EXPECT_EQ(named.at("attention").calls, layers);
  EXPECT_DOUBLE_EQ(named.at("attention").flops, pairs * 4 * q_dims * layers);
  EXPECT_DOUBLE_EQ(named.at("attention").bytes, layers * (seen * kv_dims * 2 + 2.0 * tokens * q_dims * 4));

  // Only tokens that are followed by a new one meet the output matrix.
  const OperationTime& output = named.at("linear " + std::to_string(spec.vocab) + "x" + std::to_string(spec.dim));
  EXPECT_DOUBLE_EQ(output.flops, 2.0 * (3 + 2) * spec.vocab * spec.dim);
  EXPECT_EQ(named.at("rms_norm").calls, 2 * layers + 1);
  EXPECT_EQ(named.at("gated_linear " + std::to_string(spec.dim) + "x" + std::to_string(hidden)).calls, layers);
  EXPECT_EQ(named.at("sample").calls, 1);

  double seconds = 0.0;
  for (const OperationTime& operation : all.operations) {
    EXPECT_GT(operation.bytes, 0.0) << operation.name;
    EXPECT_GE(operation.least_seconds, operation.bytes / limits.read_bytes_per_second * 0.999) << operation.name;
    seconds += operation.seconds;
  }
  EXPECT_DOUBLE_EQ(all.seconds, seconds);
  EXPECT_GT(all.seconds, 0.0);
  EXPECT_GT((*profiles)[0].seconds, 0.0);
}

class EveryKind : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryKind, StatesWhatEachOperationReads) {
  const auto instance = load_instance(options_of(GetParam()));
  ASSERT_TRUE(instance.ok()) << instance.error().message;
  const auto steps = parse_steps("2@33,1x40,1@1");
  ASSERT_TRUE(steps.ok());
  const auto profiles = profile_steps(**instance, *steps, limits, 0.0);
  ASSERT_TRUE(profiles.ok()) << profiles.error().message;
  for (const StepProfile& profile : *profiles) {
    EXPECT_FALSE(profile.operations.operations.empty());
    for (const OperationTime& operation : profile.operations.operations) {
      EXPECT_GT(operation.bytes, 0.0) << operation.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(StepProfile, EveryKind,
                         ::testing::Values("gemma3", "gpt2", "gpt_oss", "mixtral", "deepseek_v3", "lfm2", "qwen3_next",
                                           "ministral3", "olmo2", "gemma4_e", "gemma4_moe"));

TEST(StepProfile, SaysWhatAStepDoesNotFitInto) {
  const auto instance = load_instance(options_of("llama"));
  ASSERT_TRUE(instance.ok()) << instance.error().message;
  const auto refusal = [&](const char* text) {
    const auto profiles = profile_steps(**instance, *parse_steps(text), limits, 0.0);
    return profiles.ok() ? "" : profiles.error().message;
  };
  EXPECT_EQ(refusal("9@16"), "a step 9@16 needs 9 sequences, but there are 8; raise --max-num-seqs");
  EXPECT_EQ(refusal("2x49"), "a step 2x49 needs 98 tokens, but there are 96; raise --max-num-batched-tokens");
}

TEST(StepProfile, ReadsSizesAndRefusesOthers) {
  const auto steps = parse_steps("256@1024,8x1024,256@1024+8x1024");
  ASSERT_TRUE(steps.ok());
  ASSERT_EQ(steps->size(), 3U);
  EXPECT_EQ((*steps)[2].tokens(), 256 + 8192);
  EXPECT_EQ((*steps)[2].text(), "256@1024+8x1024");
  for (const char* wrong : {"", "1024", "8x", "x8", "8@-1", "0@5", "8x1024x2", "1@5+1@5", "1@5,", "9999999x9999999"}) {
    EXPECT_FALSE(parse_steps(wrong).ok()) << wrong;
  }
}

TEST(SegmentPlace, CountsWhatAWindowLetsTokensSee) {
  const SegmentPlace place{10, 5};  // positions 10 to 14
  EXPECT_EQ(place.seen(0), 15);
  EXPECT_EQ(place.pairs(0), 11 + 12 + 13 + 14 + 15);
  EXPECT_EQ(place.seen(4), 4 + 4);
  EXPECT_EQ(place.pairs(4), 5 * 4);
  EXPECT_EQ(place.pairs(12), 11 + 12 + 12 + 12 + 12);
}

}  // namespace
}  // namespace quern
