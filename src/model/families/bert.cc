// BERT, DistilBERT and RoBERTa: encoders with learned positions and norms of sums; and what scores pairs of texts with
// them.
#include <fmt/format.h>

#include "model/families/family.h"

namespace quern {
namespace {

/// `reserved` rows of the table of positions come before that of the first token.
DecoderSpec bert_like(Config& config, int reserved) {
  config.set_default("attention_bias", true);
  config.set_default("hidden_act", "gelu");
  config.set_default("layer_norm_eps", 1e-12);
  config.set_default("max_position_embeddings", 512);
  const Json* positions = config.find("position_embedding_type");
  if (positions != nullptr && *positions != Json("absolute")) {
    config.refuse(fmt::format("config: \"position_embedding_type\" is {}, but only \"absolute\" is supported",
                              positions->dump()));
  }
  DecoderSpec spec = llama_like(config);
  set_layer_norm(config, spec, "layer_norm_eps", true);
  if (spec.max_positions <= reserved) {
    config.refuse(fmt::format("config: \"max_position_embeddings\" is {}, of which {} are reserved", spec.max_positions,
                              reserved));
    return spec;
  }
  spec.max_positions -= reserved;
  spec.learned_positions = spec.max_positions;
  spec.first_position = reserved;
  spec.text_types = config.count_or("type_vocab_size", 2, 1 << 10);
  spec.embedding_norm = true;
  spec.final_norm = "";
  spec.pooler = PoolerSpec{Pooling::mean, {}};
  each_attention(spec, [](int, AttentionSpec& attention) {
    attention.rope = {};
    attention.causal = false;
  });
  for (LayerSpec& layer : spec.layers) {
    const auto& gated = std::get<FfnSpec>(layer.ffn);
    layer.ffn = PlainFfnSpec{gated.hidden, gated.activation, true};
    layer.norms = {"", "post_attention_layernorm", "", "post_feedforward_layernorm", true};
  }
  spec.names = {{"bert.", ""},
                {"roberta.", ""},
                {"encoder.layer.", "model.layers."},
                {"attention.self.query.", "self_attn.q_proj."},
                {"attention.self.key.", "self_attn.k_proj."},
                {"attention.self.value.", "self_attn.v_proj."},
                {"attention.output.dense.", "self_attn.o_proj."},
                {"attention.output.LayerNorm.", "post_attention_layernorm."},
                {"intermediate.dense.", "mlp.up_proj."},
                {"output.dense.", "mlp.down_proj."},
                {"output.LayerNorm.", "post_feedforward_layernorm."},
                {"embeddings.word_embeddings.", "model.embed_tokens."},
                {"embeddings.position_embeddings.", "model.embed_positions."},
                {"embeddings.token_type_embeddings.", "model.embed_types."},
                {"embeddings.LayerNorm.", "model.embed_norm."},
                {"gamma", "weight"},
                {"beta", "bias"}};
  return spec;
}

DecoderSpec bert(Config& config) { return bert_like(config, 0); }

/// Positions are counted from the one behind that of padding.
DecoderSpec roberta(Config& config) { return bert_like(config, config.count_or("pad_token_id", 1, 1 << 20) + 1); }

/// BERT without types of texts; its keys and tensors have names of their own.
DecoderSpec distil_bert(Config& config) {
  const std::pair<const char*, const char*> names[] = {{"hidden_size", "dim"},
                                                       {"num_hidden_layers", "n_layers"},
                                                       {"num_attention_heads", "n_heads"},
                                                       {"intermediate_size", "hidden_dim"},
                                                       {"hidden_act", "activation"}};
  for (const auto& [usual, own] : names) {
    if (config.find(own) != nullptr) config.set_default(usual, *config.find(own));
  }
  config.set_default("type_vocab_size", 0);
  DecoderSpec spec = bert_like(config, 0);
  spec.names = {{"distilbert.", ""},
                {"transformer.layer.", "model.layers."},
                {"layer.", "model.layers."},
                {"attention.q_lin.", "self_attn.q_proj."},
                {"attention.k_lin.", "self_attn.k_proj."},
                {"attention.v_lin.", "self_attn.v_proj."},
                {"attention.out_lin.", "self_attn.o_proj."},
                {"sa_layer_norm.", "post_attention_layernorm."},
                {"ffn.lin1.", "mlp.up_proj."},
                {"ffn.lin2.", "mlp.down_proj."},
                {"output_layer_norm.", "post_feedforward_layernorm."},
                {"embeddings.word_embeddings.", "model.embed_tokens."},
                {"embeddings.position_embeddings.", "model.embed_positions."},
                {"embeddings.LayerNorm.", "model.embed_norm."}};
  return spec;
}

DecoderSpec with_scores(Config& config, DecoderSpec spec, const char* dense, const char* output) {
  spec.pooler = PoolerSpec{Pooling::first, HeadSpec{}};
  HeadSpec& head = *spec.pooler->head;
  head.dense = dense;
  head.dense_bias = true;
  head.function = HeadSpec::Function::tanh;
  head.output = output;
  head.output_bias = true;
  head.labels = read_labels(config);
  return spec;
}

DecoderSpec bert_scores(Config& config) { return with_scores(config, bert(config), "pooler.dense", "classifier"); }
DecoderSpec roberta_scores(Config& config) {
  return with_scores(config, roberta(config), "classifier.dense", "classifier.out_proj");
}

const Family bert_model{"BertModel", bert};
const Family bert_words{"BertForMaskedLM", bert};
const Family distilled_model{"DistilBertModel", distil_bert};
const Family distilled_words{"DistilBertForMaskedLM", distil_bert};
const Family bert_classifier{"BertForSequenceClassification", bert_scores};
const Family roberta_model{"RobertaModel", roberta};
const Family roberta_words{"RobertaForMaskedLM", roberta};
const Family roberta_classifier{"RobertaForSequenceClassification", roberta_scores};
const Family xlm_model{"XLMRobertaModel", roberta};
const Family xlm_words{"XLMRobertaForMaskedLM", roberta};
const Family xlm_classifier{"XLMRobertaForSequenceClassification", roberta_scores};

}  // namespace
}  // namespace quern
