// Nomic's BERT: an encoder with norms of sums like BERT's, but with rope, a gate in its ffn and no biases.
#include <algorithm>
#include <fmt/format.h>

#include "model/families/family.h"

namespace quern {
namespace {

/// The keys of today from those of its own code, which are GPT-2's and a few more.
void set_defaults(Config& config) {
  const std::pair<const char*, const char*> names[] = {
      {"hidden_size", "n_embd"},         {"num_hidden_layers", "n_layer"},
      {"num_attention_heads", "n_head"}, {"max_position_embeddings", "n_positions"},
      {"intermediate_size", "n_inner"},  {"layer_norm_eps", "layer_norm_epsilon"},
      {"rope_theta", "rotary_emb_base"}};
  for (const auto& [now, then] : names) {
    if (config.find(then) != nullptr) config.set_default(now, *config.find(then));
  }
  config.set_default("layer_norm_eps", 1e-12);
  config.set_default("rope_theta", 1000.0);
  config.set_default("max_position_embeddings", 2048);
}

void refuse_others(Config& config) {
  for (const char* flag : {"prenorm", "parallel_block", "qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "use_rms_norm",
                           "rotary_emb_interleaved", "causal"}) {
    if (config.flag_or(flag, false)) config.refuse(fmt::format("config: \"{}\" true is not supported", flag));
  }
  const Json* activation = config.find("activation_function");
  if (activation != nullptr && *activation != Json("swiglu")) {
    config.refuse(
        fmt::format("config: \"activation_function\" is {}, but only \"swiglu\" is supported", activation->dump()));
  }
  if (config.count_or("moe_every_n_layers", 0, max_layers) > 0) {
    config.refuse("config: \"moe_every_n_layers\": the experts of a NomicBert are not supported");
  }
  if (config.number_or("rotary_emb_fraction", 1.0) != 1.0) {
    config.refuse("config: \"rotary_emb_fraction\" must be 1");
  }
}

DecoderSpec nomic_bert(Config& config) {
  set_defaults(config);
  refuse_others(config);
  DecoderSpec spec = llama_like(config);
  set_layer_norm(config, spec, "layer_norm_eps", true);
  // Longer texts than it was trained with would need a rope that changes with their length.
  spec.max_positions = std::min(spec.max_positions, config.size_or("max_trained_positions", 2048, max_context));
  spec.text_types = config.count_or("type_vocab_size", 2, 1 << 10);
  spec.embedding_norm = true;
  spec.final_norm = "";
  spec.pooler = PoolerSpec{Pooling::mean, {}};
  each_attention(spec, [](int, AttentionSpec& attention) { attention.causal = false; });
  for (LayerSpec& layer : spec.layers) {
    layer.norms = {"", "post_attention_layernorm", "", "post_feedforward_layernorm", true};
  }
  spec.names = {{"nomic_bert.", ""},
                {"encoder.layers.", "model.layers."},
                {"attn.Wqkv.", "self_attn.qkv_proj."},
                {"attn.out_proj.", "self_attn.o_proj."},
                {"mlp.fc11.", "mlp.up_proj."},
                {"mlp.fc12.", "mlp.gate_proj."},
                {"mlp.fc2.", "mlp.down_proj."},
                {"norm1.", "post_attention_layernorm."},
                {"norm2.", "post_feedforward_layernorm."},
                {"post_mlp_layernorm.", "post_feedforward_layernorm."},
                {"emb_ln.", "model.embed_norm."},
                {"embeddings.word_embeddings.", "model.embed_tokens."},
                {"embeddings.token_type_embeddings.", "model.embed_types."},
                {"embeddings.LayerNorm.", "model.embed_norm."}};
  return spec;
}

const Family model{"NomicBertModel", nomic_bert};

}  // namespace
}  // namespace quern
