// Families with recurrent layers: what their configurations say in the old and the new spelling, and what is refused.
#include <gtest/gtest.h>
#include <string>

#include "model/families/family.h"

namespace quern {
namespace {

std::string described(const std::string& text) {
  const auto spec = make_spec(Json::parse(text).value());
  return spec.ok() ? describe(*spec) : spec.error().message;
}

/// A small valid configuration with members added or replaced.
std::string qwen(const std::string& members) {
  Json config = Json::parse(R"({"architectures": ["Qwen3_5ForCausalLM"], "vocab_size": 100, "hidden_size": 64,
    "intermediate_size": 96, "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
    "linear_value_head_dim": 32, "max_position_embeddings": 128})")
                    .value();
  const Json added = Json::parse(members).value();
  for (const auto& [key, value] : added.members()) config.set(key, value);
  return config.dump();
}

std::string lfm(const std::string& members) {
  Json config = Json::parse(R"({"architectures": ["Lfm2ForCausalLM"], "vocab_size": 100, "hidden_size": 64,
    "block_ff_dim": 96, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 128, "full_attn_idxs": [2]})")
                    .value();
  const Json added = Json::parse(members).value();
  for (const auto& [key, value] : added.members()) config.set(key, value);
  return config.dump();
}

TEST(RecurrentFamilies, DescribesQwen3Next) {
  EXPECT_EQ(
      described(R"({"architectures": ["Qwen3NextForCausalLM"], "vocab_size": 151936, "hidden_size": 2048,
      "intermediate_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2,
      "head_dim": 256, "full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
      "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "num_experts": 512,
      "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
      "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [], "partial_rotary_factor": 0.25,
      "rope_theta": 10000000, "rope_scaling": null, "max_position_embeddings": 262144, "rms_norm_eps": 1e-6,
      "tie_word_embeddings": false})"),
      "Qwen3NextForCausalLM: 48 layers, dim 2048, vocabulary 151936, 262144 positions\n"
      "rms norm eps 1e-06, weights + 1; own output\n"
      "layers 0-2 4-6 8-10 12-14 16-18 20-22 24-26 28-30 32-34 36-38 40-42 44-46: gated delta net 32/16 heads of "
      "128/128, convolution of 4; moe 10 of 512 experts of 512 silu, renormalized, 512 shared gated\n"
      "layers 3 7 11 15 19 23 27 31 35 39 43 47: attention 16/2 heads of 256, scale 0.0625, qk norm, output gate, "
      "rope 64 1..1.65482e-07; moe 10 of 512 experts of 512 silu, renormalized, 512 shared gated\n");
}

TEST(RecurrentFamilies, DescribesQwen35WithExperts) {
  const std::string text = R"("vocab_size": 248320, "hidden_size": 2048, "num_hidden_layers": 8,
      "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "linear_conv_kernel_dim": 4,
      "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
      "linear_num_value_heads": 32, "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
      "shared_expert_intermediate_size": 512, "max_position_embeddings": 262144, "rms_norm_eps": 1e-6,
      "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention",
                      "linear_attention", "linear_attention", "linear_attention", "full_attention"],
      "rope_parameters": {"mrope_interleaved": true, "mrope_section": [11, 11, 10], "rope_type": "default",
                          "rope_theta": 10000000, "partial_rotary_factor": 0.25}})";
  const std::string experts = "; moe 8 of 256 experts of 512 silu, renormalized, 512 shared gated\n";
  const std::string expected =
      ": 8 layers, dim 2048, vocabulary 248320, 262144 positions\n"
      "rms norm eps 1e-06, weights + 1; own output\n"
      "layers 0-2 4-6: gated delta net 32/16 heads of 128/128, convolution of 4" +
      experts + "layers 3 7: attention 16/2 heads of 256, scale 0.0625, qk norm, output gate, rope 64 1..1.65482e-07" +
      experts;
  EXPECT_EQ(described(R"({"architectures": ["Qwen3_5MoeForCausalLM"], )" + text), "Qwen3_5MoeForCausalLM" + expected);
  EXPECT_EQ(described(R"({"architectures": ["Qwen3_5MoeForConditionalGeneration"], "vision_config": {},
                          "text_config": {)" +
                      text + "}"),
            "Qwen3_5MoeForConditionalGeneration" + expected);
}

TEST(RecurrentFamilies, DescribesLfm2WithExperts) {
  const std::string config = R"({"architectures": ["Lfm2MoeForCausalLM"], "vocab_size": 65536, "hidden_size": 2048,
      "intermediate_size": 7168, "moe_intermediate_size": 1792, "num_hidden_layers": 6, "num_attention_heads": 32,
      "num_key_value_heads": 8, "num_experts": 32, "num_experts_per_tok": 4, "num_dense_layers": 2,
      "conv_L_cache": 3, "conv_bias": false, "norm_eps": 1e-5, "norm_topk_prob": true, "use_expert_bias": true,
      "routed_scaling_factor": 1.0, "max_position_embeddings": 128000, )";
  const std::string experts = "; moe 4 of 32 experts of 1792 silu, sigmoid, renormalized, choice bias\n";
  const std::string expected =
      "Lfm2MoeForCausalLM: 6 layers, dim 2048, vocabulary 65536, 128000 positions\n"
      "rms norm eps 1e-05; tied output\n"
      "layers 0-1: gated convolution of 3; ffn 7168 silu\n"
      "layers 2: attention 32/8 heads of 64, scale 0.125, qk norm, rope 64 1..1.53993e-06" +
      experts + "layers 3-5: gated convolution of 3" + experts;
  EXPECT_EQ(described(config + R"("rope_theta": 1000000.0, "tie_embedding": true,
      "layer_types": ["conv", "conv", "full_attention", "conv", "conv", "conv"]})"),
            expected);
  EXPECT_EQ(described(config + R"("rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"},
                                  "full_attn_idxs": [2]})"),
            expected);
}

TEST(RecurrentFamilies, OldAndNewSpellingAreTheSame) {
  const std::string old_text = described(qwen(R"({"full_attention_interval": 4, "rope_theta": 1e6})"));
  EXPECT_EQ(old_text, described(qwen(R"({"rope_parameters": {"rope_theta": 1e6, "partial_rotary_factor": 0.25,
      "rope_type": "default", "mrope_section": [1, 1, 2], "mrope_interleaved": true}, "layer_types":
      ["linear_attention", "linear_attention", "linear_attention", "full_attention", "linear_attention",
       "linear_attention", "linear_attention", "full_attention"]})")));
  EXPECT_NE(old_text.find("layers 0-2 4-6: gated delta net 4/2 heads of 32/16"), std::string::npos) << old_text;

  const std::string conv = described(lfm(R"({"block_auto_adjust_ff_dim": false, "rope_theta": 1e6})"));
  EXPECT_EQ(conv, described(lfm(R"({"layer_types": ["conv", "conv", "full_attention", "conv"], "full_attn_idxs": null,
      "intermediate_size": 96, "block_ff_dim": null, "block_auto_adjust_ff_dim": false,
      "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}})")));
  EXPECT_NE(conv.find("layers 0-1 3: gated convolution of 3; ffn 96 silu"), std::string::npos) << conv;
}

TEST(RecurrentFamilies, TheFfnOfLfm2IsAdjusted) {
  const auto ffn_of = [](const std::string& members) {
    const auto spec = make_spec(Json::parse(lfm(members)).value());
    return std::get<FfnSpec>(spec.value().layers[0].ffn).hidden;
  };
  EXPECT_EQ(ffn_of(R"({"block_ff_dim": 12288, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256})"), 8192);
  EXPECT_EQ(ffn_of(R"({"block_ff_dim": 6656, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256})"), 4608);
  EXPECT_EQ(ffn_of(R"({"block_ff_dim": 100, "block_ffn_dim_multiplier": 1.5, "block_multiple_of": 32})"), 128);
}

TEST(RecurrentFamilies, RefusesWhatIsNotSupported) {
  const auto refused = [](const std::string& text, const std::string& message) {
    EXPECT_EQ(described(text), "config: " + message);
  };
  refused(qwen(R"({"linear_num_value_heads": 3})"),
          "\"linear_num_value_heads\" is 3, no multiple of \"linear_num_key_heads\", 2");
  refused(qwen(R"({"linear_key_head_dim": 24})"),
          "\"linear_key_head_dim\" is 24 and \"linear_value_head_dim\" 32, but must be multiples of 16");
  refused(qwen(R"({"linear_key_head_dim": 512})"), "\"linear_key_head_dim\" is 512, but must be between 0 and 256");
  refused(qwen(R"({"linear_conv_kernel_dim": 1})"), "\"linear_conv_kernel_dim\" is 1, but must be at least 2");
  refused(qwen(R"({"linear_conv_kernel_dim": 9})"), "\"linear_conv_kernel_dim\" is 9, but must be between 0 and 4");
  refused(qwen(R"({"attention_bias": true})"),
          "\"attention_bias\" is true, which is not supported beside a gate on the output of attention");
  refused(qwen(R"({"hidden_act": "gelu"})"), "\"hidden_act\" must be silu in a gated delta net");
  refused(qwen(R"({"full_attention_interval": 9})"), "a model without a layer of attention is not supported");
  refused(qwen(R"({"layer_types": ["mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba"]})"),
          "\"layer_types\" has \"mamba\", which is not supported");
  refused(lfm(R"({"conv_L_cache": 5})"), "\"conv_L_cache\" is 5, but must be between 0 and 4");
  refused(lfm(R"({"hidden_size": 40})"), "\"hidden_size\" is 40, no multiple of 16");
  refused(lfm(R"({"full_attn_idxs": "all"})"), "\"full_attn_idxs\" must be a list of layers");
  refused(lfm(R"({"block_ffn_dim_multiplier": -1, "block_auto_adjust_ff_dim": true})"),
          "\"block_ffn_dim_multiplier\" is -1, but must be between 0 and 16");
}

}  // namespace
}  // namespace quern
