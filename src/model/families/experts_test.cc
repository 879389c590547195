// Configurations of models with experts, as they are published, and what is refused in them.
#include <gtest/gtest.h>
#include <string>

#include "model/families/family.h"

namespace quern {
namespace {

std::string described(const std::string& text, const std::string& members = "{}") {
  Json config = Json::parse(text).value();
  const Json added = Json::parse(members).value();
  for (const auto& [key, value] : added.members()) config.set(key, value);
  const auto spec = make_spec(config);
  return spec.ok() ? describe(*spec) : spec.error().message;
}

const std::string deepseek_v3 = R"({"architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false,
  "first_k_dense_replace": 3, "hidden_act": "silu", "hidden_size": 7168, "intermediate_size": 18432,
  "kv_lora_rank": 512, "max_position_embeddings": 163840, "moe_intermediate_size": 2048, "moe_layer_freq": 1,
  "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 128,
  "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128, "num_nextn_predict_layers": 1,
  "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
  "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
                   "original_max_position_embeddings": 4096, "type": "yarn"},
  "rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "tie_word_embeddings": false,
  "topk_group": 4, "topk_method": "noaux_tc", "v_head_dim": 128, "vocab_size": 129280})";

TEST(ExpertFamilies, DeepSeekV3) {
  const std::string latent =
      "latent attention 128 heads of 128 + 64, values of 128, rank 512, scale 0.135234, query rank 1536, "
      "rope 64 interleaved 1..3.3338e-06";
  EXPECT_EQ(described(deepseek_v3),
            "DeepseekV3ForCausalLM: 61 layers, dim 7168, vocabulary 129280, 163840 positions\n"
            "rms norm eps 1e-06; own output\n"
            "layers 0-2: " +
                latent + "; ffn 18432 silu\n" + "layers 3-60: " + latent +
                "; moe 8 of 256 experts of 2048 silu, sigmoid, 4 of 8 groups by their best two, "
                "renormalized, x 2.5, choice bias, 2048 shared\n");
}

TEST(ExpertFamilies, DeepSeekV2Lite) {
  const std::string config = R"({"architectures": ["DeepseekV2ForCausalLM"], "first_k_dense_replace": 1,
      "hidden_size": 2048, "intermediate_size": 10944, "kv_lora_rank": 512, "max_position_embeddings": 163840,
      "moe_intermediate_size": 1408, "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2,
      "norm_topk_prob": false, "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27,
      "num_key_value_heads": 16, "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
      "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 10000, "routed_scaling_factor": 1.0,
      "scoring_func": "softmax", "topk_group": 1, "topk_method": "greedy", "v_head_dim": 128, "vocab_size": 102400})";
  const std::string latent =
      "latent attention 16 heads of 128 + 64, values of 128, rank 512, scale 0.0721688, rope 64 interleaved "
      "1..0.000133352";
  EXPECT_EQ(described(config),
            "DeepseekV2ForCausalLM: 27 layers, dim 2048, vocabulary 102400, 163840 positions\n"
            "rms norm eps 1e-06; own output\n"
            "layers 0: " +
                latent + "; ffn 10944 silu\n" + "layers 1-26: " + latent +
                "; moe 6 of 64 experts of 1408 silu, 2816 shared\n");
}

TEST(ExpertFamilies, Glm45) {
  const std::string config = R"({"architectures": ["Glm4MoeForCausalLM"], "attention_bias": true, "head_dim": 128,
      "hidden_act": "silu", "hidden_size": 5120, "partial_rotary_factor": 0.5, "intermediate_size": 12288,
      "max_position_embeddings": 131072, "moe_intermediate_size": 1536, "n_group": 1, "n_routed_experts": 160,
      "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 96, "num_experts_per_tok": 8,
      "first_k_dense_replace": 3, "num_hidden_layers": 92, "num_key_value_heads": 8, "num_nextn_predict_layers": 1,
      "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 1000000, "routed_scaling_factor": 2.5,
      "tie_word_embeddings": false, "topk_group": 1, "use_qk_norm": true, "vocab_size": 151552})";
  const std::string attention =
      "attention 96/8 heads of 128, scale 0.0883883, qkv bias, qk norm, rope 64 1..1.53993e-06";
  EXPECT_EQ(described(config),
            "Glm4MoeForCausalLM: 92 layers, dim 5120, vocabulary 151552, 131072 positions\n"
            "rms norm eps 1e-05; own output\n"
            "layers 0-2: " +
                attention + "; ffn 12288 silu\n" + "layers 3-91: " + attention +
                "; moe 8 of 160 experts of 1536 silu, sigmoid, "
                "renormalized, x 2.5, choice bias, 1536 shared\n");
}

const std::string gpt_oss = R"({"architectures": ["GptOssForCausalLM"], "attention_bias": true,
  "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880, "initial_context_length": 4096,
  "intermediate_size": 2880, "layer_types": ["sliding_attention", "full_attention"],
  "max_position_embeddings": 131072, "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 2,
  "num_key_value_heads": 8, "num_local_experts": 32, "rms_norm_eps": 1e-05,
  "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
                   "rope_type": "yarn", "truncate": false},
  "rope_theta": 150000, "sliding_window": 128, "swiglu_limit": 7.0, "tie_word_embeddings": false,
  "vocab_size": 201088})";

TEST(ExpertFamilies, GptOss) {
  const std::string heads = "attention 64/8 heads of 64, scale 0.125";
  const std::string rest =
      ", qkv bias, output bias, sinks, rope 64 1..3.02351e-07 x 1.34657; moe 4 of 32 experts of 2880 clamped_swiglu, "
      "renormalized, router bias, bias\n";
  EXPECT_EQ(described(gpt_oss),
            "GptOssForCausalLM: 2 layers, dim 2880, vocabulary 201088, 131072 positions\n"
            "rms norm eps 1e-05; own output\n"
            "layers 0: " +
                heads + ", window 128" + rest + "layers 1: " + heads + rest);
}

TEST(ExpertFamilies, QwenTwo) {
  EXPECT_EQ(described(R"({"architectures": ["Qwen2MoeForCausalLM"], "decoder_sparse_step": 1, "hidden_size": 2048,
      "intermediate_size": 5632, "max_position_embeddings": 8192, "max_window_layers": 21,
      "moe_intermediate_size": 1408, "norm_topk_prob": false, "num_attention_heads": 16, "num_experts": 60,
      "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 16, "rms_norm_eps": 1e-06,
      "rope_theta": 1000000.0, "shared_expert_intermediate_size": 5632, "sliding_window": 32768,
      "use_sliding_window": false, "vocab_size": 151936})"),
            "Qwen2MoeForCausalLM: 24 layers, dim 2048, vocabulary 151936, 8192 positions\n"
            "rms norm eps 1e-06; own output\n"
            "layers 0-23: attention 16/16 heads of 128, scale 0.0883883, qkv bias, rope 128 1..1.24094e-06; "
            "moe 4 of 60 experts of 1408 silu, 5632 shared gated\n");
}

TEST(ExpertFamilies, Mixtral) {
  EXPECT_EQ(described(R"({"architectures": ["MixtralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
      "max_position_embeddings": 32768, "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32,
      "num_key_value_heads": 8, "num_local_experts": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0,
      "sliding_window": null, "vocab_size": 32000})"),
            "MixtralForCausalLM: 32 layers, dim 4096, vocabulary 32000, 32768 positions\n"
            "rms norm eps 1e-05; own output\n"
            "layers 0-31: attention 32/8 heads of 128, scale 0.0883883, rope 128 1..1.24094e-06; "
            "moe 2 of 8 experts of 14336 silu, renormalized\n");
}

TEST(ExpertFamilies, Olmoe) {
  EXPECT_EQ(described(R"({"architectures": ["OlmoeForCausalLM"], "clip_qkv": null, "hidden_act": "silu",
      "hidden_size": 2048, "intermediate_size": 1024, "max_position_embeddings": 4096, "norm_topk_prob": false,
      "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8, "num_hidden_layers": 16,
      "num_key_value_heads": 16, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0,
      "tie_word_embeddings": false, "vocab_size": 50304})"),
            "OlmoeForCausalLM: 16 layers, dim 2048, vocabulary 50304, 4096 positions\n"
            "rms norm eps 1e-05; own output\n"
            "layers 0-15: attention 16/16 heads of 128, scale 0.0883883, whole qk norm, rope 128 1..0.000115478; "
            "moe 8 of 64 experts of 1024 silu\n");
}

TEST(ExpertFamilies, MiniMaxM2) {
  EXPECT_EQ(described(R"({"architectures": ["MiniMaxM2ForCausalLM"], "head_dim": 128, "hidden_act": "silu",
      "hidden_size": 3072, "intermediate_size": 1536, "max_position_embeddings": 196608, "num_attention_heads": 48,
      "num_experts_per_tok": 8, "num_hidden_layers": 62, "num_key_value_heads": 8, "num_local_experts": 256,
      "rms_norm_eps": 1e-06, "rope_theta": 5000000, "rotary_dim": 64, "scoring_func": "sigmoid",
      "tie_word_embeddings": false, "use_qk_norm": true, "use_routing_bias": true, "vocab_size": 200064})"),
            "MiniMaxM2ForCausalLM: 62 layers, dim 3072, vocabulary 200064, 196608 positions\n"
            "rms norm eps 1e-06; own output\n"
            "layers 0-61: attention 48/8 heads of 128, scale 0.0883883, whole qk norm, rope 64 1..3.23872e-07; "
            "moe 8 of 256 experts of 1536 silu, sigmoid, renormalized, choice bias\n");
}

const std::string granite_moe = R"({"architectures": ["GraniteMoeForCausalLM"], "attention_bias": false,
  "attention_multiplier": 0.015625, "embedding_multiplier": 12.0, "hidden_act": "silu", "hidden_size": 1024,
  "intermediate_size": 512, "logits_scaling": 6.0, "max_position_embeddings": 4096, "num_attention_heads": 16,
  "num_experts_per_tok": 8, "num_hidden_layers": 24, "num_key_value_heads": 8, "num_local_experts": 32,
  "residual_multiplier": 0.22, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 10000,
  "tie_word_embeddings": true, "vocab_size": 49155})";
const std::string of_granite_moe =
    ": 24 layers, dim 1024, vocabulary 49155, 4096 positions\n"
    "rms norm eps 1e-06; embedding x 12; tied output x 0.166667\n"
    "layers 0-23: attention 16/8 heads of 64, scale 0.015625, rope 64 1..0.000133352; "
    "moe 8 of 32 experts of 512 silu, renormalized";

TEST(ExpertFamilies, GraniteMoe) {
  EXPECT_EQ(described(granite_moe), "GraniteMoeForCausalLM" + of_granite_moe + "; residual x 0.22\n");
}

TEST(ExpertFamilies, GraniteMoeSharedHasOneMoreExpertForAll) {
  const std::string shared = R"({"architectures": ["GraniteMoeSharedForCausalLM"], "shared_intermediate_size": )";
  const std::string expected = "GraniteMoeSharedForCausalLM" + of_granite_moe;
  EXPECT_EQ(described(granite_moe, shared + "1024}"), expected + ", 1024 shared; residual x 0.22\n");
  EXPECT_EQ(described(granite_moe, shared + "0}"), expected + "; residual x 0.22\n");
}

const std::string gemma4 = R"({"architectures": ["Gemma4ForCausalLM"], "attention_k_eq_v": true,
  "enable_moe_block": true, "final_logit_softcapping": 30.0, "global_head_dim": 512, "head_dim": 256,
  "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2816, "hidden_size_per_layer_input": 0,
  "intermediate_size": 2112, "max_position_embeddings": 262144, "moe_intermediate_size": 704, "num_attention_heads": 16,
  "num_experts": 128, "num_global_key_value_heads": 2, "num_hidden_layers": 30, "num_key_value_heads": 8,
  "num_kv_shared_layers": 0, "rms_norm_eps": 1e-06, "sliding_window": 1024, "top_k_experts": 8,
  "use_double_wide_mlp": false, "vocab_size": 262144})";

TEST(ExpertFamilies, Gemma4HasAnFfnBesideItsExperts) {
  const std::string rest =
      "; ffn 2112 gelu_tanh beside moe 8 of 128 experts of 704 gelu_tanh, renormalized; post norms; scaled\n";
  EXPECT_EQ(described(gemma4),
            "Gemma4ForCausalLM: 30 layers, dim 2816, vocabulary 262144, 262144 positions\n"
            "rms norm eps 1e-06; embedding x 53.066; tied output, softcap 30\n"
            "layers 0-4 6-10 12-16 18-22 24-28: attention 16/8 heads of 256, scale 1, window 1024, qk norm, v norm, "
            "rope 256 1..0.000107461" +
                rest + "layers 5 11 17 23 29: attention 16/2 heads of 512, scale 1, qk norm, v norm, v = k, " +
                "rope 512 1..0" + rest);
}

struct Refusal {
  const std::string& config;
  const char* members;
  const char* message;
};

TEST(ExpertFamilies, WhatIsNotSupportedIsRefusedByName) {
  const Refusal refusals[] = {
      {deepseek_v3, R"({"scoring_func": "softmax"})",
       "config: \"scoring_func\" is \"softmax\", which is not supported"},
      {deepseek_v3, R"({"topk_method": "greedy"})", "config: \"topk_method\" is \"greedy\", which is not supported"},
      {deepseek_v3, R"({"kv_lora_rank": 1024})",
       "config: \"kv_lora_rank\" and \"qk_rope_head_dim\" make 1088 values, more than 576"},
      {deepseek_v3, R"({"topk_group": 9})", "config: 8 experts a token cannot come from 9 of 8 groups of 256 experts"},
      {deepseek_v3, R"({"n_group": 7})", "config: 8 experts a token cannot come from 4 of 7 groups of 256 experts"},
      {deepseek_v3, R"({"n_routed_experts": 4})", "config: \"num_experts_per_tok\" is 8, more than the 4 experts"},
      {deepseek_v3, R"({"n_routed_experts": 8, "topk_group": 8})",
       "config: 8 experts in 8 groups, but a group must have two"},
      {deepseek_v3, R"({"n_group": 64})", "config: \"n_group\" is 64, but must be between 0 and 32"},
      {deepseek_v3, R"({"qk_nope_head_dim": null})", "config: \"qk_nope_head_dim\" is missing"},
      {gemma4, R"({"top_k_experts": 129})", "config: \"top_k_experts\" is 129, more than the 128 experts"},
      {gemma4, R"({"top_k_experts": null})", "config: \"top_k_experts\" is missing"},
      {gpt_oss, R"({"swiglu_limit": 5.0})", "config: \"swiglu_limit\" must be 7 and \"swiglu_alpha\" 1.702"},
      {gpt_oss, R"({"num_local_experts": 0})", "config: \"num_local_experts\" is 0, but must be positive"},
  };
  for (const Refusal& refusal : refusals) {
    EXPECT_EQ(described(refusal.config, refusal.members), refusal.message) << refusal.members;
  }
}

}  // namespace
}  // namespace quern
