// GPT-2: learned positions, norms that take the mean off, biases everywhere, an ffn without a gate; its matrices are
// stored [in, out].
#include "model/families/family.h"

namespace quern {
namespace {

/// The keys of today from those of then.
void set_defaults(Config& config) {
  const std::pair<const char*, const char*> names[] = {
      {"hidden_size", "n_embd"},         {"num_hidden_layers", "n_layer"},
      {"num_attention_heads", "n_head"}, {"max_position_embeddings", "n_positions"},
      {"intermediate_size", "n_inner"},  {"hidden_act", "activation_function"}};
  for (const auto& [now, then] : names) {
    if (config.find(then) != nullptr) config.set_default(now, *config.find(then));
  }
  config.set_default("max_position_embeddings", 1024);
  config.set_default("intermediate_size", 4 * int64_t{config.size("hidden_size", max_dim)});
  config.set_default("hidden_act", "gelu_new");
  config.set_default("tie_word_embeddings", true);
  config.set_default("attention_bias", true);
}

DecoderSpec gpt2(Config& config) {
  set_defaults(config);
  if (config.flag_or("add_cross_attention", false)) {
    config.refuse("config: \"add_cross_attention\" is not supported");
  }
  DecoderSpec spec = llama_like(config);
  set_layer_norm(config, spec, "layer_norm_epsilon", true);
  spec.learned_positions = spec.max_positions;
  for (LayerSpec& layer : spec.layers) {
    const auto& gated = std::get<FfnSpec>(layer.ffn);
    layer.ffn = PlainFfnSpec{gated.hidden, gated.activation, true};
  }
  const bool scaled = config.flag_or("scale_attn_weights", true);
  const bool by_layer = config.flag_or("scale_attn_by_inverse_layer_idx", false);
  each_attention(spec, [&](int layer, AttentionSpec& attention) {
    attention.rope = {};
    if (!scaled) attention.scale = 1.0F;
    if (by_layer) attention.scale /= static_cast<float>(layer + 1);
  });
  spec.names = {{"h.", "model.layers."},
                {"ln_1.", "input_layernorm."},
                {"ln_2.", "post_attention_layernorm."},
                {"attn.c_attn.", "self_attn.qkv_proj.", true},
                {"attn.c_proj.", "self_attn.o_proj.", true},
                {"mlp.c_fc.", "mlp.up_proj.", true},
                {"mlp.c_proj.", "mlp.down_proj.", true},
                {"wte.", "model.embed_tokens."},
                {"wpe.", "model.embed_positions."},
                {"ln_f.", "model.norm."}};
  return spec;
}

const Family second{"GPT2LMHeadModel", gpt2};

}  // namespace
}  // namespace quern
