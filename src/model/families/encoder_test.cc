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
