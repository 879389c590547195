#include <gtest/gtest.h>
#include <string>

#include "base/json.h"
#include "model/families/family.h"

namespace quern {
namespace {

std::string described(const std::string& text) {
  const auto spec = make_spec(Json::parse(text).value());
  return spec.ok() ? describe(*spec) : spec.error().message;
}

TEST(Encoders, DescribesMiniLm) {
  EXPECT_EQ(
      described(R"({"architectures": ["BertModel"], "hidden_act": "gelu", "hidden_size": 384,
      "intermediate_size": 1536, "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "num_attention_heads": 12,
      "num_hidden_layers": 6, "pad_token_id": 0, "position_embedding_type": "absolute", "type_vocab_size": 2,
      "vocab_size": 30522})"),
      "BertModel: 6 layers, dim 384, vocabulary 30522, 512 positions\n"
      "layer norm eps 1e-12, bias; 512 learned positions; 2 types of text; norm of the embedding; no last norm; no "
      "output\n"
      "layers 0-5: attention 12/12 heads of 32, scale 0.176777, qkv bias, output bias, both ways, no rope; plain ffn "
      "1536 gelu_erf, bias; norms of sums\n"
      "pooling: mean\n");
}

TEST(Encoders, RobertaCountsPositionsFromBehindThatOfPadding) {
  const auto spec =
      make_spec(Json::parse(R"({"architectures": ["XLMRobertaForSequenceClassification"], "vocab_size": 100,
      "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
      "max_position_embeddings": 514, "pad_token_id": 1, "type_vocab_size": 1, "id2label": {"0": "LABEL_0"}})")
                    .value());
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->max_positions, 512);
  EXPECT_EQ(spec->first_position, 2);
  EXPECT_FALSE(is_causal(*spec));
  ASSERT_TRUE(spec->pooler && spec->pooler->head);
  EXPECT_EQ(spec->pooler->head->output, "classifier.out_proj");
  EXPECT_EQ(spec->pooler->head->labels, 1);
}

TEST(Encoders, ModernBertSeesFarOnlyInEveryThirdLayer) {
  const auto spec =
      make_spec(Json::parse(R"({"architectures": ["ModernBertModel"], "vocab_size": 100, "hidden_size": 64,
      "intermediate_size": 96, "num_hidden_layers": 5, "num_attention_heads": 4, "max_position_embeddings": 8192,
      "local_attention": 128, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0,
      "local_rope_theta": 10000.0})")
                    .value());
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  std::string windows;
  for (const LayerSpec& layer : spec->layers) {
    windows += std::to_string(std::get<AttentionSpec>(layer.mixer).window) + " ";
  }
  EXPECT_EQ(windows, "0 65 65 0 65 ");
  EXPECT_FALSE(std::get<AttentionSpec>(spec->layers[0].mixer).rope ==
               std::get<AttentionSpec>(spec->layers[1].mixer).rope);
  EXPECT_EQ(spec->layers[0].norms.before_mixer, "");
  EXPECT_EQ(spec->layers[1].norms.before_mixer, "input_layernorm");
  // Only one layer needs its keys at a time.
  const KvLayout layout = kv_layout(*spec, 4);
  EXPECT_EQ(layout.groups.size(), 1U);
  EXPECT_EQ(layout.page_bytes, 2 * 16 * 64 * 4);
}

TEST(Encoders, DescribesNomicsEmbeddings) {
  const std::string config = R"({"architectures": ["NomicBertModel"], "activation_function": "swiglu", "causal": false,
      "layer_norm_epsilon": 1e-12, "max_trained_positions": 2048, "mlp_fc1_bias": false, "model_type": "nomic_bert",
      "n_embd": 768, "n_head": 12, "n_inner": 3072, "n_layer": 12, "n_positions": 8192, "prenorm": false,
      "qkv_proj_bias": false, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": false,
      "type_vocab_size": 2, "vocab_size": 30528)";
  EXPECT_EQ(described(config + "}"),
            "NomicBertModel: 12 layers, dim 768, vocabulary 30528, 2048 positions\n"
            "layer norm eps 1e-12, bias; 2 types of text; norm of the embedding; no last norm; no output\n"
            "layers 0-11: attention 12/12 heads of 64, scale 0.125, both ways, rope 64 1..0.00124094; ffn 3072 silu; "
            "norms of sums\n"
            "pooling: mean\n");
  EXPECT_EQ(described(config + R"(, "moe_every_n_layers": 2})"),
            "config: \"moe_every_n_layers\": the experts of a NomicBert are not supported");
  EXPECT_EQ(described(config + R"(, "parallel_block": true})"), "config: \"parallel_block\" true is not supported");
}

TEST(Encoders, EmbeddingGemmaSeesHalfAWindowToEachSide) {
  const auto spec =
      make_spec(Json::parse(R"({"architectures": ["Gemma3TextModel"], "vocab_size": 262144, "hidden_size": 768,
      "intermediate_size": 1152, "num_hidden_layers": 24, "num_attention_heads": 3, "num_key_value_heads": 1,
      "head_dim": 256, "max_position_embeddings": 2048, "query_pre_attn_scalar": 256, "sliding_window": 512,
      "_sliding_window_pattern": 6, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
      "use_bidirectional_attention": true, "hidden_activation": "gelu_pytorch_tanh"})")
                    .value());
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_FALSE(is_causal(*spec));
  ASSERT_TRUE(spec->pooler);
  DecoderSpec with_layers = *spec;
  with_layers.pooler->dense = {{"2_Dense.linear", 3072, false, HeadSpec::Function::none},
                               {"3_Dense.linear", 768, true, HeadSpec::Function::tanh}};
  EXPECT_TRUE(describe(with_layers).ends_with("pooling: mean; dense 3072; dense 768, bias, tanh\n"));
  for (size_t i = 0; i < spec->layers.size(); ++i) {
    EXPECT_EQ(std::get<AttentionSpec>(spec->layers[i].mixer).window, (i + 1) % 6 == 0 ? 0 : 257) << i;
  }
}

TEST(Encoders, DescribesDistilBert) {
  EXPECT_EQ(
      described(R"({"architectures": ["DistilBertModel"], "activation": "gelu", "dim": 768, "hidden_dim": 3072,
      "max_position_embeddings": 512, "n_heads": 12, "n_layers": 6, "sinusoidal_pos_embds": false,
      "vocab_size": 30522})"),
      "DistilBertModel: 6 layers, dim 768, vocabulary 30522, 512 positions\n"
      "layer norm eps 1e-12, bias; 512 learned positions; norm of the embedding; no last norm; no output\n"
      "layers 0-5: attention 12/12 heads of 64, scale 0.125, qkv bias, output bias, both ways, no rope; plain ffn "
      "3072 gelu_erf, bias; norms of sums\n"
      "pooling: mean\n");
}

TEST(Encoders, RefusesWhatIsNotThere) {
  const std::string start = R"({"architectures": ["BertModel"], "vocab_size": 100, "hidden_size": 64,
      "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4)";
  EXPECT_EQ(described(start + R"(, "position_embedding_type": "relative_key"})"),
            "config: \"position_embedding_type\" is \"relative_key\", but only \"absolute\" is supported");
  EXPECT_EQ(described(R"({"architectures": ["RobertaModel"], "vocab_size": 100, "hidden_size": 64,
      "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 2})"),
            "config: \"max_position_embeddings\" is 2, of which 2 are reserved");
  EXPECT_EQ(described(R"({"architectures": ["ModernBertModel"], "vocab_size": 100, "hidden_size": 64,
      "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "norm_bias": true})"),
            "config: \"norm_bias\" true is not supported");
}

}  // namespace
}  // namespace quern
