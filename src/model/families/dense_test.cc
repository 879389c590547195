// Dense families: what differs from Llama, and what is refused.
#include <gtest/gtest.h>
#include <string>

#include "model/families/testing.h"

namespace quern {
namespace {

using testing::described;
using testing::with;

constexpr const char* rope = "rope 16 1..0.000316228";

TEST(DenseFamilies, Ministral3HasQueriesThatGrow) {
  EXPECT_EQ(described(with(R"({"architectures": ["Ministral3ForCausalLM"], "rope_parameters": {"rope_type": "default",
      "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 64}})")),
            "Ministral3ForCausalLM: 2 layers, dim 64, vocabulary 100, 128 positions\n"
            "rms norm eps 1e-06; own output\n"
            "layers 0-1: attention 4/4 heads of 16, scale 0.25, q x 1 + 0.1 ln(1 + position / 64), " +
                std::string(rope) + "; ffn 96 silu\n");
  EXPECT_EQ(described(with(R"({"architectures": ["Ministral3ForCausalLM"],
                               "rope_scaling": {"llama_4_scaling_beta": 0.1}})")),
            "config: \"llama_4_scaling_beta\" needs \"original_max_position_embeddings\" of at least 1");
}

TEST(DenseFamilies, SmolLM3DoesNotRotateEveryFourthLayer) {
  const std::string rotating = "attention 4/4 heads of 16, scale 0.25, rope 16 1..3.94385e-06; ffn 96 silu\n";
  const std::string resting = "attention 4/4 heads of 16, scale 0.25, no rope; ffn 96 silu\n";
  const std::string head =
      "SmolLM3ForCausalLM: 5 layers, dim 64, vocabulary 100, 128 positions\nrms norm eps 1e-06; tied output\n";
  for (const char* layers : {"", R"(, "no_rope_layers": [])", R"(, "no_rope_layers": [1, 1, 1, 0, 1])"}) {
    EXPECT_EQ(described(with(std::string(R"({"architectures": ["SmolLM3ForCausalLM"], "num_hidden_layers": 5,
                                 "rope_theta": 1.5e6, "num_key_value_heads": 4)") +
                             layers + "}")),
              head + "layers 0-2 4: " + rotating + "layers 3: " + resting);
  }
  EXPECT_EQ(described(with(R"({"architectures": ["SmolLM3ForCausalLM"], "no_rope_layers": [1]})")),
            "config: \"no_rope_layers\" must be a list of 2 numbers");
}

TEST(DenseFamilies, GemmaAddsOneToNormsAndScalesTheEmbedding) {
  const std::string config = R"({"architectures": ["GemmaForCausalLM"], "head_dim": 256, "hidden_size": 2048,
      "intermediate_size": 16384, "max_position_embeddings": 8192, "num_attention_heads": 8, "num_hidden_layers": 18,
      "num_key_value_heads": 1, "rms_norm_eps": 1e-06, "vocab_size": 256000, )";
  const std::string expected =
      "GemmaForCausalLM: 18 layers, dim 2048, vocabulary 256000, 8192 positions\n"
      "rms norm eps 1e-06, weights + 1; embedding x 45.2548; tied output\n"
      "layers 0-17: attention 8/1 heads of 256, scale 0.0625, rope 256 1..0.000107461; ffn 16384 gelu_tanh\n";
  EXPECT_EQ(described(config + R"("hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh",
                                  "rope_theta": 10000.0, "rope_scaling": null})"),
            expected);
  EXPECT_EQ(described(config + R"("hidden_act": "gelu_pytorch_tanh",
                                  "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}})"),
            expected);
}

TEST(DenseFamilies, Gemma2CapsAndAlternates) {
  EXPECT_EQ(described(with(R"({"architectures": ["Gemma2ForCausalLM"], "head_dim": 16, "sliding_window": 32,
                               "query_pre_attn_scalar": 64})")),
            "Gemma2ForCausalLM: 2 layers, dim 64, vocabulary 100, 128 positions\n"
            "rms norm eps 1e-06, weights + 1; embedding x 8; tied output, softcap 30\n"
            "layers 0: attention 4/4 heads of 16, scale 0.125, window 32, softcap 50, " +
                std::string(rope) + "; ffn 96 gelu_tanh; post norms\n" +
                "layers 1: attention 4/4 heads of 16, scale 0.125, softcap 50, " + rope +
                "; ffn 96 gelu_tanh; post norms\n");
}

constexpr const char* gemma4_e2b = R"({"architectures": ["Gemma4ForConditionalGeneration"], "text_config": {
    "attention_k_eq_v": false, "enable_moe_block": false, "final_logit_softcapping": 30.0, "global_head_dim": 512,
    "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1536, "hidden_size_per_layer_input": 256,
    "intermediate_size": 6144, "max_position_embeddings": 131072, "num_attention_heads": 8,
    "num_global_key_value_heads": null, "num_hidden_layers": 12, "num_key_value_heads": 1, "num_kv_shared_layers": 7,
    "rms_norm_eps": 1e-06, "sliding_window": 512, "tie_word_embeddings": true, "use_bidirectional_attention": null,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention",
                    "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
                    "sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
    "use_double_wide_mlp": true, "vocab_size": 262144, "vocab_size_per_layer_input": 262144)";

TEST(DenseFamilies, Gemma4SharesKeysAndHasInputsOfLayers) {
  const std::string local = "rope 256 1..0.000107461";
  const std::string full = "rope 512 1..0";
  const std::string rest = " gelu_tanh; post norms; scaled\n";
  EXPECT_EQ(described(std::string(gemma4_e2b) + "}}"),
            "Gemma4ForConditionalGeneration: 12 layers, dim 1536, vocabulary 262144, 131072 positions\n"
            "rms norm eps 1e-06; embedding x 39.1918; 256 inputs of each layer, gelu_tanh; tied output, softcap 30\n"
            "layers 0-1 3-4: attention 8/1 heads of 256, scale 1, window 512, qk norm, v norm, " +
                local + "; ffn 6144" + rest + "layers 2: attention 8/1 heads of 512, scale 1, qk norm, v norm, " +
                full + "; ffn 6144" + rest +
                "layers 5-6 8-10: attention 8/1 heads of 256 to the keys of layer 4, scale 1, window 512, " + local +
                "; ffn 12288" + rest + "layers 7 11: attention 8/1 heads of 512 to the keys of layer 2, scale 1, " +
                full + "; ffn 12288" + rest);
  EXPECT_EQ(described(std::string(gemma4_e2b) + R"(, "num_kv_shared_layers": 10}})"),
            "config: \"num_kv_shared_layers\" is 10, which leaves no layer of the kind of layer 2 to have keys");
  EXPECT_EQ(described(std::string(gemma4_e2b) + R"(, "num_kv_shared_layers": 12}})"),
            "config: \"num_kv_shared_layers\" is 12, which leaves no layer of the kind of layer 0 to have keys");
}

TEST(DenseFamilies, Glm4RotatesNeighboursOfHalfAHead) {
  EXPECT_EQ(described(with(R"({"architectures": ["Glm4ForCausalLM"], "head_dim": 16})")),
            "Glm4ForCausalLM: 2 layers, dim 64, vocabulary 100, 128 positions\n"
            "rms norm eps 1.5625e-07; own output\n"
            "layers 0-1: attention 4/2 heads of 16, scale 0.25, qkv bias, rope 8 interleaved 1..0.001; "
            "ffn 96 silu; post norms\n");
}

TEST(DenseFamilies, GlmIsGlm4WithoutNormsAfterItsBlocks) {
  const std::string config = R"({"architectures": ["GlmForCausalLM"], "attention_bias": true, "head_dim": 128,
      "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 13696, "max_position_embeddings": 131072,
      "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 2, "rms_norm_eps": 1.5625e-07,
      "tie_word_embeddings": false, "vocab_size": 151552, )";
  const std::string expected =
      "GlmForCausalLM: 40 layers, dim 4096, vocabulary 151552, 131072 positions\n"
      "rms norm eps 1.5625e-07; own output\n"
      "layers 0-39: attention 32/2 heads of 128, scale 0.0883883, qkv bias, rope 64 interleaved 1..0.000133352; "
      "ffn 13696 silu\n";
  EXPECT_EQ(described(config + R"("partial_rotary_factor": 0.5, "rope_theta": 10000.0})"), expected);
  EXPECT_EQ(described(config + R"("rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 10000.0,
                                                      "rope_type": "default"}})"),
            expected);
}

TEST(DenseFamilies, Olmo2HasNormsAfterItsBlocksOnly) {
  EXPECT_EQ(described(R"({"architectures": ["Olmo2ForCausalLM"], "attention_bias": false, "hidden_act": "silu",
      "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 4096, "num_attention_heads": 32,
      "num_hidden_layers": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-06, "rope_scaling": null,
      "rope_theta": 500000, "tie_word_embeddings": false, "vocab_size": 100352})"),
            "Olmo2ForCausalLM: 32 layers, dim 4096, vocabulary 100352, 4096 positions\n"
            "rms norm eps 1e-06; own output\n"
            "layers 0-31: attention 32/32 heads of 128, scale 0.0883883, whole qk norm, rope 128 1..2.45514e-06; "
            "ffn 11008 silu; norms after, none before\n");
}

TEST(DenseFamilies, Olmo3LengthensOnlyTheRopeOfFullLayers) {
  EXPECT_EQ(described(with(R"({"architectures": ["Olmo3ForCausalLM"], "num_hidden_layers": 4, "sliding_window": 32,
      "rope_theta": 10000.0, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                                              "original_max_position_embeddings": 32}})")),
            "Olmo3ForCausalLM: 4 layers, dim 64, vocabulary 100, 128 positions\n"
            "rms norm eps 1e-05; own output\n"
            "layers 0-2: attention 4/4 heads of 16, scale 0.25, window 32, whole qk norm, " +
                std::string(rope) + "; ffn 96 silu; norms after, none before\n" +
                "layers 3: attention 4/4 heads of 16, scale 0.25, whole qk norm, "
                "rope 16 1..7.90569e-05 x 1.13863; ffn 96 silu; norms after, none before\n");
}

TEST(DenseFamilies, GraniteMultiplies) {
  EXPECT_EQ(described(with(R"({"architectures": ["GraniteForCausalLM"], "attention_multiplier": 0.5,
      "embedding_multiplier": 12, "residual_multiplier": 0.22, "logits_scaling": 8})")),
            "GraniteForCausalLM: 2 layers, dim 64, vocabulary 100, 128 positions\n"
            "rms norm eps 1e-06; embedding x 12; own output x 0.125\n"
            "layers 0-1: attention 4/4 heads of 16, scale 0.5, " +
                std::string(rope) + "; ffn 96 silu; residual x 0.22\n");
  EXPECT_EQ(described(with(R"({"architectures": ["GraniteForCausalLM"], "logits_scaling": 0})")),
            "config: \"logits_scaling\" must be a positive number below a million");
  EXPECT_EQ(described(with(R"({"architectures": ["GraniteMoeHybridForCausalLM"], "layer_types": ["mamba", "attention"],
                               "shared_intermediate_size": 96})")),
            "config: \"layer_types\" of a GraniteMoeHybrid must be attention; state spaces are not supported");
}

TEST(DenseFamilies, CohereHasParallelPartsAndNormsOfHeadsWhereItSaysSo) {
  const std::string config = R"({"architectures": ["CohereForCausalLM"], "attention_bias": false,
      "hidden_act": "silu", "hidden_size": 12288, "intermediate_size": 33792, "layer_norm_eps": 1e-05,
      "logit_scale": 0.8333333333333334, "max_position_embeddings": 8192, "num_attention_heads": 96,
      "num_hidden_layers": 64, "num_key_value_heads": 8, "rope_theta": 75000000.0, "vocab_size": 256000)";
  const std::string before =
      "CohereForCausalLM: 64 layers, dim 12288, vocabulary 256000, 8192 positions\n"
      "layer norm eps 1e-05; tied output x 0.833333\n"
      "layers 0-63: attention 96/8 heads of 128, scale 0.0883883, ";
  const std::string after = "rope 128 interleaved 1..1.77005e-08; ffn 33792 silu; parallel\n";
  EXPECT_EQ(described(config + R"(, "use_qk_norm": true})"), before + "qk layer norm, " + after);
  EXPECT_EQ(described(config + "}"), before + after);
}

TEST(DenseFamilies, Cohere2HasParallelPartsAndNoRopeWithoutAWindow) {
  EXPECT_EQ(described(with(R"({"architectures": ["Cohere2ForCausalLM"], "num_hidden_layers": 4,
                               "sliding_window": 32, "logit_scale": 0.25})")),
            "Cohere2ForCausalLM: 4 layers, dim 64, vocabulary 100, 128 positions\n"
            "layer norm eps 1e-05; tied output x 0.25\n"
            "layers 0-2: attention 4/4 heads of 16, scale 0.25, window 32, rope 16 interleaved 1..0.000316228; "
            "ffn 96 silu; parallel\n"
            "layers 3: attention 4/4 heads of 16, scale 0.25, no rope; ffn 96 silu; parallel\n");
}

TEST(DenseFamilies, StarCoder2HasBiasesAndAnFfnWithoutAGate) {
  const std::string config = R"({"architectures": ["Starcoder2ForCausalLM"], "hidden_act": "gelu_pytorch_tanh",
      "hidden_size": 3072, "intermediate_size": 12288, "max_position_embeddings": 16384, "mlp_type": "default",
      "norm_epsilon": 1e-05, "norm_type": "layer_norm", "num_attention_heads": 24, "num_hidden_layers": 30,
      "num_key_value_heads": 2, "rope_theta": 999999.4420358813, "sliding_window": 4096, "vocab_size": 49152, )";
  const std::string head =
      "Starcoder2ForCausalLM: 30 layers, dim 3072, vocabulary 49152, 16384 positions\n"
      "layer norm eps 1e-05, bias; tied output\n"
      "layers 0-29: attention 24/2 heads of 128, scale 0.0883883, window 4096, ";
  const std::string ropes = "rope 128 1..1.24094e-06; plain ffn 12288 gelu_tanh";
  EXPECT_EQ(described(config + R"("use_bias": true})"), head + "qkv bias, output bias, " + ropes + ", bias\n");
  EXPECT_EQ(described(config + R"("use_bias": false})"), head + ropes + "\n");
}

TEST(DenseFamilies, Gpt2SpeaksInKeysOfItsOwn) {
  const std::string text = R"({"architectures": ["GPT2LMHeadModel"], "vocab_size": 100, "n_embd": 64, "n_layer": 2,
                               "n_head": 4, "n_positions": 48, "n_inner": null, "activation_function": "gelu_new"})";
  EXPECT_EQ(described(text),
            "GPT2LMHeadModel: 2 layers, dim 64, vocabulary 100, 48 positions\n"
            "layer norm eps 1e-05, bias; 48 learned positions; tied output\n"
            "layers 0-1: attention 4/4 heads of 16, scale 0.25, qkv bias, output bias, no rope; "
            "plain ffn 256 gelu_tanh, bias\n");
  const auto by_layer = make_spec(Json::parse(text).value().set("scale_attn_by_inverse_layer_idx", true));
  EXPECT_EQ(std::get<AttentionSpec>(by_layer->layers[1].mixer).scale, 0.125F);
  EXPECT_EQ(described(R"({"architectures": ["GPT2LMHeadModel"]})"), "config: \"hidden_size\" is missing");
}

TEST(DenseFamilies, Exaone4TakesItsPatternInLettersToo) {
  const auto windows = [](const std::string& pattern) {
    const auto spec = make_spec(Json::parse(with(R"({"architectures": ["Exaone4ForCausalLM"], "num_hidden_layers": 4,
        "sliding_window": 32, "sliding_window_pattern": )" +
                                                 pattern + "}"))
                                    .value());
    std::string out;
    for (const LayerSpec& layer : spec->layers) {
      const auto& attention = std::get<AttentionSpec>(layer.mixer);
      EXPECT_EQ(attention.window > 0, attention.rope.dims > 0);
      out += attention.window > 0 ? 'L' : 'G';
    }
    return out;
  };
  EXPECT_EQ(windows("4"), "LLLG");
  EXPECT_EQ(windows(R"("LLLG")"), "LLLG");
  EXPECT_EQ(windows(R"("LG")"), "LGLG");
}

TEST(DenseFamilies, Phi3TakesALongListByEveryName) {
  for (const char* type : {"su", "longrope", "yarn"}) {
    const std::string text = described(with(std::string(R"({"architectures": ["Phi3ForCausalLM"],
        "original_max_position_embeddings": 32, "rope_scaling": {"type": ")") +
                                            type + R"(",
        "short_factor": [1, 1, 1, 1, 1, 1, 1, 1], "long_factor": [2, 2, 2, 2, 2, 2, 2, 4]}})"));
    EXPECT_NE(text.find("rope 16 0.5..7.90569e-05 x 1.18322"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace quern
