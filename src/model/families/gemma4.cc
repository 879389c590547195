// Gemma 4 without per-layer embeddings, shared keys and experts: plain norms, also of values; full layers have heads of
// another size, and may take their keys as values.
#include <cmath>
#include <fmt/format.h>

#include "model/families/family.h"
#include "model/families/rope_rules.h"
#include "ops/attention.h"

namespace quern {
namespace {

void refuse_what_is_missing(Config& config) {
  if (config.count_or("hidden_size_per_layer_input", 256, max_dim) > 0) {
    config.refuse("config: \"hidden_size_per_layer_input\" must be 0; per-layer embeddings are not supported");
  }
  if (config.count_or("num_kv_shared_layers", 0, max_layers) > 0) {
    config.refuse("config: \"num_kv_shared_layers\" must be 0; layers that share keys are not supported");
  }
  if (config.flag_or("enable_moe_block", false)) config.refuse("config: \"enable_moe_block\" is not supported");
  const Json* both_ways = config.find("use_bidirectional_attention");
  if (both_ways != nullptr && *both_ways == Json("all")) {
    config.refuse("config: \"use_bidirectional_attention\" is not supported for all tokens");
  }
}

/// A number of one layer: new files keep it under the layer, old ones under a key for all full layers.
int of_layer(Config& config, int layer, std::string_view key, std::string_view old_key, int fallback, int max) {
  const Json* all = config.find("per_layer_config");
  const Json* own = all == nullptr ? nullptr : all->present(fmt::format("{}", layer));
  const auto value = own == nullptr ? std::nullopt : own->integer(key);
  if (!value) return config.size_or(old_key, fallback, max);
  if (*value > 0 && *value <= max) return static_cast<int>(*value);
  config.refuse(fmt::format("config: \"{}\" of layer {} must be between 1 and {}", key, layer, max));
  return 1;
}

void set_full_layer(Config& config, int layer, int positions, AttentionSpec& attention) {
  const bool keys_are_values = config.flag_or("attention_k_eq_v", false);
  attention.values_are_keys = keys_are_values;
  attention.head_dim = of_layer(config, layer, "head_dim", "global_head_dim", 512, max_head_dim);
  if (keys_are_values) {
    attention.kv_heads =
        of_layer(config, layer, "num_key_value_heads", "num_global_key_value_heads", attention.kv_heads, max_heads);
  }
  if (attention.head_dim % 2 != 0 || attention.heads % attention.kv_heads != 0) {
    config.refuse(fmt::format("config: layer {} has {} heads for {} kv heads of {}, which does not fit", layer,
                              attention.heads, attention.kv_heads, attention.head_dim));
    return;
  }
  attention.rope = read_rope(config, {attention.head_dim, positions, 1e6}, "full_attention");
}

DecoderSpec gemma4(Config& config) {
  refuse_what_is_missing(config);
  config.set_default("head_dim", 256);
  config.set_default("max_position_embeddings", 131072);
  config.set_default("tie_word_embeddings", true);
  const int positions = config.size("max_position_embeddings", max_context);
  DecoderSpec spec = llama_like(config);
  spec.max_positions = positions;
  spec.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(spec.dim)));
  spec.logit_softcap = static_cast<float>(config.number_or("final_logit_softcapping", 0.0));
  const Activation activation = config.activation("hidden_activation", "gelu_pytorch_tanh");
  for (LayerSpec& layer : spec.layers) {
    layer.norms = norms_around_blocks();
    layer.scaled = true;
    std::get<FfnSpec>(layer.ffn).activation = activation;
  }
  const int last = static_cast<int>(spec.layers.size()) - 1;
  set_windows(config, spec, config.count_or("sliding_window", 512, max_context),
              [](int layer) { return (layer + 1) % 6 != 0; });
  each_attention(spec, [&](int layer, AttentionSpec& attention) {
    attention.scale = 1.0F;
    attention.qk_norm = true;
    attention.value_norm = true;
    if (layer == last) attention.window = 0;
    if (attention.window == 0) return set_full_layer(config, layer, positions, attention);
    attention.rope = read_rope(config, {attention.head_dim, positions, 1e4}, "sliding_attention");
  });
  return spec;
}

const Family text{"Gemma4ForCausalLM", gemma4};
const Family with_images{"Gemma4ForConditionalGeneration", gemma4};

}  // namespace
}  // namespace quern
