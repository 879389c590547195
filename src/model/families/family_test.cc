#include "model/families/family.h"

#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "model/families/rope_rules.h"
#include "model/families/testing.h"

namespace quern {
namespace {

using testing::described;
using testing::with;

TEST(Families, DescribesLlama) {
  EXPECT_EQ(described(R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 49152, "hidden_size": 576,
      "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
      "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 100000, "rope_scaling": null,
      "tie_word_embeddings": true, "torch_dtype": "bfloat16"})"),
            "LlamaForCausalLM: 30 layers, dim 576, vocabulary 49152, 8192 positions\n"
            "rms norm eps 1e-05; tied output\n"
            "layers 0-29: attention 9/3 heads of 64, scale 0.125, rope 64 1..1.43301e-05; ffn 1536 silu\n");
}

TEST(Families, OldAndNewSpellingOfRopeAreTheSame) {
  const std::string old_text = with(R"({"rope_theta": 500000.0, "rope_scaling": {"type": "llama3", "factor": 8.0,
      "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}})");
  const std::string new_text = with(R"({"rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0,
      "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}})");

  const auto first = make_spec(Json::parse(old_text).value());
  const auto second = make_spec(Json::parse(new_text).value());

  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->layers, second->layers);
}

TEST(Families, MistralHasAWindowOnEveryLayer) {
  EXPECT_EQ(described(with(R"({"architectures": ["MistralForCausalLM"], "sliding_window": 32, "head_dim": 32})")),
            "MistralForCausalLM: 2 layers, dim 64, vocabulary 100, 128 positions\n"
            "rms norm eps 1e-06; own output\n"
            "layers 0-1: attention 4/4 heads of 32, scale 0.176777, window 32, rope 32 1..0.000177828; ffn 96 silu\n");
}

TEST(Families, Qwen2HasBiasOnQkvAlwaysAndWindowsOnlyWhenTheyAreUsed) {
  EXPECT_EQ(described(with(R"({"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": false,
                               "sliding_window": 32, "max_window_layers": 1})")),
            "Qwen2ForCausalLM: 2 layers, dim 64, vocabulary 100, 128 positions\n"
            "rms norm eps 1e-06; own output\n"
            "layers 0-1: attention 4/4 heads of 16, scale 0.25, qkv bias, rope 16 1..0.000316228; ffn 96 silu\n");
  EXPECT_EQ(
      described(with(R"({"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": true,
                               "sliding_window": 32, "max_window_layers": 1})")),
      "Qwen2ForCausalLM: 2 layers, dim 64, vocabulary 100, 128 positions\n"
      "rms norm eps 1e-06; own output\n"
      "layers 0: attention 4/4 heads of 16, scale 0.25, qkv bias, rope 16 1..0.000316228; ffn 96 silu\n"
      "layers 1: attention 4/4 heads of 16, scale 0.25, window 32, qkv bias, rope 16 1..0.000316228; ffn 96 silu\n");
}

TEST(Families, Qwen3HasNormsOnQAndK) {
  EXPECT_EQ(described(with(R"({"architectures": ["Qwen3ForCausalLM"], "head_dim": 32, "num_key_value_heads": 2})")),
            "Qwen3ForCausalLM: 2 layers, dim 64, vocabulary 100, 128 positions\n"
            "rms norm eps 1e-06; own output\n"
            "layers 0-1: attention 4/2 heads of 32, scale 0.176777, qk norm, rope 32 1..0.000177828; ffn 96 silu\n");
}

TEST(Families, Qwen3MoeHasExpertsWhereLayersAreSparse) {
  for (const char* count : {"num_experts", "num_local_experts"}) {
    EXPECT_EQ(described(with(fmt::format(R"({{"architectures": ["Qwen3MoeForCausalLM"], "{}": 8,
                  "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": true,
                  "num_hidden_layers": 4, "mlp_only_layers": [3], "decoder_sparse_step": 2}})",
                                         count))),
              "Qwen3MoeForCausalLM: 4 layers, dim 64, vocabulary 100, 128 positions\n"
              "rms norm eps 1e-06; own output\n"
              "layers 0 2-3: attention 4/4 heads of 16, scale 0.25, qk norm, rope 16 1..0.000316228; ffn 96 silu\n"
              "layers 1: attention 4/4 heads of 16, scale 0.25, qk norm, rope 16 1..0.000316228; "
              "moe 2 of 8 experts of 24 silu, renormalized\n");
  }
}

constexpr const char* gemma_layers =
    "layers 0-4 6: attention 4/1 heads of 256, scale 0.0625, window 512, qk norm, rope 256 1..0.000107461; "
    "ffn 2048 gelu_tanh; post norms\n"
    "layers 5: attention 4/1 heads of 256, scale 0.0625, qk norm, rope 256 0.125..1.39247e-07; "
    "ffn 2048 gelu_tanh; post norms\n";
constexpr const char* gemma_head =
    ": 7 layers, dim 640, vocabulary 1000, 32768 positions\n"
    "rms norm eps 1e-06, weights + 1; embedding x 25.2982; tied output\n";

TEST(Families, Gemma3HasTwoKindsOfLayers) {
  EXPECT_EQ(described(R"({"architectures": ["Gemma3ForCausalLM"], "vocab_size": 1000, "hidden_size": 640,
      "intermediate_size": 2048, "num_hidden_layers": 7, "num_attention_heads": 4, "num_key_value_heads": 1,
      "max_position_embeddings": 32768, "sliding_window": 512, "sliding_window_pattern": 6, "rope_theta": 1e6,
      "rope_local_base_freq": 1e4, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}})"),
            std::string("Gemma3ForCausalLM") + gemma_head + gemma_layers);
}

TEST(Families, Gemma3InsideATextConfigInTheNewSpellingIsTheSame) {
  EXPECT_EQ(described(R"({"architectures": ["Gemma3ForConditionalGeneration"], "vision_config": {}, "text_config": {
      "vocab_size": 1000, "hidden_size": 640, "intermediate_size": 2048, "num_hidden_layers": 7,
      "num_attention_heads": 4, "num_key_value_heads": 1, "max_position_embeddings": 32768, "sliding_window": 512,
      "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention",
                      "sliding_attention", "full_attention", "sliding_attention"],
      "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                          "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}})"),
            std::string("Gemma3ForConditionalGeneration") + gemma_head + gemma_layers);
}

TEST(Families, AnUnknownArchitectureIsRefusedWithTheKnownOnes) {
  const std::string refusal = described(with(R"({"architectures": ["MambaForCausalLM"]})"));
  EXPECT_EQ(refusal.find("the architecture \"MambaForCausalLM\" is not supported; known are "), 0U) << refusal;
  EXPECT_NE(refusal.find(", LlamaForCausalLM, "), std::string::npos) << refusal;
  EXPECT_EQ(described("{}"), "config: \"architectures\" is missing");
  EXPECT_EQ(described(R"({"architectures": []})"), "config: \"architectures\" must be a list of names");
}

struct Refusal {
  const char* members;
  const char* message;
};

// S2
TEST(Families, WrongValuesAreRefusedByName) {
  const Refusal refusals[] = {
      {R"({"hidden_size": null})", "config: \"hidden_size\" is missing"},
      {R"({"hidden_size": 0})", "config: \"hidden_size\" is 0, but must be positive"},
      {R"({"hidden_size": -64})", "config: \"hidden_size\" is -64, but must be between 0 and 131072"},
      {R"({"hidden_size": 9000000000000000000})",
       "config: \"hidden_size\" is 9000000000000000000, but must be between 0 and 131072"},
      {R"({"num_hidden_layers": "two"})", "config: \"num_hidden_layers\" is a string, but must be a whole number"},
      {R"({"num_attention_heads": 0})", "config: \"num_attention_heads\" is 0, but must be positive"},
      {R"({"num_attention_heads": 3})", "config: \"hidden_size\" is 64, no multiple of \"num_attention_heads\", 3"},
      {R"({"num_key_value_heads": 3})",
       "config: \"num_attention_heads\" is 4, no multiple of \"num_key_value_heads\", 3"},
      {R"({"num_key_value_heads": 0})", "config: \"num_key_value_heads\" is 0, but must be positive"},
      {R"({"head_dim": 7})", "config: \"head_dim\" is 7, but must be even"},
      {R"({"rms_norm_eps": 0})", "config: \"rms_norm_eps\" must be between 0 and 1"},
      {R"({"hidden_act": "tanh"})",
       "config: \"hidden_act\" is \"tanh\", but must be silu, gelu, gelu_pytorch_tanh or relu"},
      {R"({"rope_theta": 0})", "config: \"rope_theta\" must be above 1"},
      {R"({"partial_rotary_factor": 2})", "config: \"partial_rotary_factor\" must be above 0 and at most 1"},
      {R"({"rope_scaling": {"rope_type": "spiral"}})",
       "config: the rope scaling \"spiral\" is not supported; known are default, linear, dynamic, llama3, yarn, "
       "longrope and proportional"},
      {R"({"rope_scaling": {"rope_type": "linear"}})",
       "config: \"factor\" of the rope scaling must be a positive number"},
      {R"({"rope_scaling": {"rope_type": "linear", "factor": -1}})",
       "config: \"factor\" of the rope scaling must be a positive number"},
      {R"({"rope_scaling": {"rope_type": "longrope", "long_factor": [1], "original_max_position_embeddings": 8}})",
       "config: \"long_factor\" of the rope scaling must be a list of 8 positive numbers"},
      {R"({"architectures": ["Qwen2ForCausalLM"], "layer_types": ["full_attention"]})",
       "config: \"layer_types\" must be a list of 2 names"},
      {R"({"architectures": ["Qwen2ForCausalLM"], "layer_types": ["full_attention", "linear_attention"]})",
       "config: \"layer_types\" has \"linear_attention\", which is not supported"},
      {R"({"architectures": ["Qwen3MoeForCausalLM"]})", "config: \"num_local_experts\" is missing"},
      {R"({"architectures": ["Qwen3MoeForCausalLM"], "num_experts": 2, "num_experts_per_tok": 3,
           "moe_intermediate_size": 8})",
       "config: \"num_experts_per_tok\" is 3, more than the 2 experts"},
  };
  for (const Refusal& refusal : refusals)
    EXPECT_EQ(described(with(refusal.members)), refusal.message) << refusal.members;
}

RopeSpec rope_of(const std::string& members, int head_dim, int max_positions, double theta) {
  const Json json = Json::parse(members).value();
  Config config(json);
  RopeSpec rope = read_rope(config, {head_dim, max_positions, theta}, "full_attention");
  EXPECT_TRUE(config.ok()) << config.error()->message;
  return rope;
}

void expect_frequencies(const RopeSpec& rope, const std::vector<std::pair<int, double>>& expected) {
  for (const auto& [j, value] : expected) {
    EXPECT_NEAR(rope.inverse_frequencies[static_cast<size_t>(j)], value, value * 1e-6) << "pair " << j;
  }
}

TEST(Rope, Llama31And32) {
  expect_frequencies(rope_of(R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
                                 "high_freq_factor": 4, "original_max_position_embeddings": 8192}})",
                             128, 131072, 5e5),
                     {{28, 0.003211446},
                      {29, 0.0021665708},
                      {30, 0.0013718936},
                      {33, 0.00031269375},
                      {34, 0.00017850781},
                      {35, 9.5562124e-05},
                      {36, 7.7846553e-05},
                      {63, 3.068926e-07}});
  expect_frequencies(rope_of(R"({"rope_scaling": {"rope_type": "llama3", "factor": 32, "low_freq_factor": 1,
                                 "high_freq_factor": 4, "original_max_position_embeddings": 8192}})",
                             64, 131072, 5e5),
                     {{14, 0.003211446},
                      {15, 0.0012905479},
                      {16, 0.0004295568},
                      {17, 9.7082878e-05},
                      {18, 1.9461638e-05},
                      {31, 9.4183067e-08}});
}

TEST(Rope, YarnTruncatedAndNot) {
  const RopeSpec gpt = rope_of(R"({"rope_scaling": {"rope_type": "yarn", "factor": 32, "truncate": false,
                                   "original_max_position_embeddings": 4096}})",
                               64, 131072, 150000);
  expect_frequencies(gpt, {{8, 0.050813275},
                           {9, 0.031705696},
                           {12, 0.0067949595},
                           {17, 0.0001293187},
                           {18, 3.8308812e-05},
                           {31, 3.0235114e-07}});
  EXPECT_NEAR(gpt.factor, 1.34657359, 1e-6);

  const RopeSpec deepseek = rope_of(R"({"rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0,
                                        "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}})",
                                    64, 163840, 1e4);
  expect_frequencies(deepseek, {{10, 0.056234133},
                                {11, 0.039006927},
                                {16, 0.0055},
                                {22, 0.00017782794},
                                {23, 3.3338036e-05},
                                {31, 3.3338036e-06}});
  EXPECT_EQ(deepseek.factor, 1.0F);

  const RopeSpec qwen = rope_of(R"({"rope_scaling": {"type": "yarn", "factor": 4,
                                    "original_max_position_embeddings": 32768}})",
                                128, 32768, 1e6);
  expect_frequencies(qwen, {{24, 0.0053753215}, {40, 4.4456985e-05}, {63, 3.1023444e-07}});
  EXPECT_NEAR(qwen.factor, 1.1386294361, 1e-6);
}

TEST(Rope, LongropePicksOneListByTheModelsLength) {
  const std::string lists = R"({"original_max_position_embeddings": 4096, "rope_scaling": {"type": "su",
                                "short_factor": [1, 1], "long_factor": [2, 4]}})";

  const RopeSpec longer = rope_of(lists, 4, 131072, 1e4);
  const RopeSpec shorter = rope_of(lists, 4, 4096, 1e4);

  expect_frequencies(longer, {{0, 0.5}, {1, 0.01 / 4}});
  EXPECT_NEAR(longer.factor, 1.1902380714, 1e-6);
  expect_frequencies(shorter, {{0, 1.0}, {1, 0.01}});
  EXPECT_EQ(shorter.factor, 1.0F);
}

TEST(Rope, LinearDynamicFactorsAndPartial) {
  expect_frequencies(rope_of(R"({"rope_scaling": {"type": "linear", "factor": 4}})", 4, 64, 1e4),
                     {{0, 0.25}, {1, 0.0025}});
  expect_frequencies(rope_of(R"({"rope_scaling": {"type": "dynamic", "factor": 4}})", 4, 64, 1e4),
                     {{0, 1.0}, {1, 0.01}});
  expect_frequencies(rope_of(R"({"rope_scaling": {"rope_type": "factors", "factors": [1, 8]}})", 4, 64, 1e4),
                     {{0, 1.0}, {1, 0.01 / 8}});
  EXPECT_EQ(rope_of(R"({"rope_parameters": {"partial_rotary_factor": 0.5}})", 8, 64, 1e4).dims, 4);
}

TEST(Families, LinearAndYarnLengthenTheContext) {
  const auto positions = [](const std::string& members) {
    return make_spec(Json::parse(with(members)).value()).value().max_positions;
  };

  EXPECT_EQ(positions(R"({"rope_scaling": {"type": "linear", "factor": 4}})"), 512);
  EXPECT_EQ(positions(R"({"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 128}})"),
            512);
  EXPECT_EQ(positions(R"({"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 16}})"),
            128);
}

}  // namespace
}  // namespace quern
