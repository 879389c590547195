// ModernBERT: an encoder of gated layers with rope; of three layers, two see only what is near.
#include <fmt/format.h>

#include "model/families/family.h"
#include "model/families/rope_rules.h"

namespace quern {
namespace {

/// The rope of a kind of layer: in its own dictionary in new files, a base alone in old ones.
RopeSpec rope_of(Config& config, const RopeFrame& frame, const char* kind, const char* old_key, double theta) {
  const Json* both = config.find("rope_parameters");
  if (both != nullptr && both->present(kind) != nullptr) return read_rope(config, frame, kind);
  return plain_rope(config, frame, config.number_or(old_key, theta));
}

void set_layers(Config& config, DecoderSpec& spec) {
  const int reach = config.size_or("local_attention", 128, max_context) / 2;
  const int period = config.size_or("global_attn_every_n_layers", 3, max_layers);
  set_windows(config, spec, reach + 1, [&](int layer) { return layer % period != 0; });
  each_attention(spec, [&](int, AttentionSpec& attention) {
    const RopeFrame frame{attention.head_dim, spec.max_positions, 160000.0};
    attention.causal = false;
    attention.rope = attention.window > 0 ? rope_of(config, frame, "sliding_attention", "local_rope_theta", 10000.0)
                                          : rope_of(config, frame, "full_attention", "global_rope_theta", 160000.0);
  });
  spec.layers.front().norms.before_mixer = "";  // the embedding has a norm
}

DecoderSpec modern_bert(Config& config) {
  for (const char* flag : {"norm_bias", "mlp_bias", "attention_bias"}) {
    if (config.flag_or(flag, false)) config.refuse(fmt::format("config: \"{}\" true is not supported", flag));
  }
  const Json* activation = config.find("hidden_activation");
  config.set_default("hidden_act", activation != nullptr ? *activation : Json("gelu"));
  config.set_default("max_position_embeddings", 8192);
  DecoderSpec spec = llama_like(config);
  set_layer_norm(config, spec, "norm_eps", false);
  spec.embedding_norm = true;
  spec.pooler = PoolerSpec{Pooling::mean, {}};
  set_layers(config, spec);
  spec.names = {{"model.embeddings.tok_embeddings.", "model.embed_tokens."},
                {"embeddings.tok_embeddings.", "model.embed_tokens."},
                {"model.embeddings.norm.", "model.embed_norm."},
                {"embeddings.norm.", "model.embed_norm."},
                {"model.final_norm.", "model.norm."},
                {"final_norm.", "model.norm."},
                {"attn.Wqkv.", "self_attn.qkv_proj."},
                {"attn.Wo.", "self_attn.o_proj."},
                {"attn_norm.", "input_layernorm."},
                {"mlp_norm.", "post_attention_layernorm."},
                {"mlp.Wi.", "mlp.gate_up_proj."},
                {"mlp.Wo.", "mlp.down_proj."}};
  return spec;
}

DecoderSpec modern_bert_scores(Config& config) {
  DecoderSpec spec = modern_bert(config);
  const Json* pooling = config.find("classifier_pooling");
  const bool mean = pooling != nullptr && *pooling == Json("mean");
  spec.pooler = PoolerSpec{mean ? Pooling::mean : Pooling::first, HeadSpec{}};
  HeadSpec& head = *spec.pooler->head;
  head.dense = "head.dense";
  head.dense_bias = config.flag_or("classifier_bias", false);
  head.function = HeadSpec::Function::gelu;
  head.norm = "head.norm";
  head.output = "classifier";
  head.output_bias = true;
  head.labels = read_labels(config);
  return spec;
}

const Family model{"ModernBertModel", modern_bert};
const Family words{"ModernBertForMaskedLM", modern_bert};
const Family classifier{"ModernBertForSequenceClassification", modern_bert_scores};

}  // namespace
}  // namespace quern
