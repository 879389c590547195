// Gemma 4: plain norms, also of values; full layers have heads of another size, and may take their keys as values.
// Small ones have inputs of each layer, and last layers that attend to the keys of earlier ones; large ones may have
// experts.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <utility>

#include "model/families/experts.h"
#include "model/families/family.h"
#include "model/families/rope_rules.h"
#include "ops/attention.h"

namespace quern {
namespace {

void refuse_what_is_missing(Config& config) {
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

Json default_ropes() {
  Json full, sliding;
  full.set("rope_type", "proportional").set("rope_theta", 1e6).set("partial_rotary_factor", 0.25);
  sliding.set("rope_type", "default").set("rope_theta", 1e4);
  return Json().set("full_attention", std::move(full)).set("sliding_attention", std::move(sliding));
}

void read_layer_input(Config& config, DecoderSpec& spec, Activation activation) {
  const int dim = config.count_or("hidden_size_per_layer_input", 256, max_dim);
  if (dim == 0) return;
  spec.layer_input = {config.size_or("vocab_size_per_layer_input", 262144, max_vocab), dim, activation};
}

void add_experts(Config& config, DecoderSpec& spec, Activation activation) {
  if (!config.flag_or("enable_moe_block", false)) return;
  MoeSpec experts = read_experts(config, "moe_intermediate_size", "top_k_experts");
  experts.activation = activation;
  experts.router.renormalize = true;
  for (LayerSpec& layer : spec.layers) layer.ffn = FfnWithExpertsSpec{std::get<FfnSpec>(layer.ffn), experts};
}

/// The last layers attend to the keys of the last layer of their kind that is none of them.
void share_keys(Config& config, DecoderSpec& spec) {
  const int layers = static_cast<int>(spec.layers.size());
  const int shared = config.count_or("num_kv_shared_layers", 0, max_layers);
  const bool wide = config.flag_or("use_double_wide_mlp", false);
  for (int i = std::max(0, layers - shared); i < layers; ++i) {
    LayerSpec& layer = spec.layers[static_cast<size_t>(i)];
    int owner = layers - shared - 1;
    while (owner >= 0 && spec.layers[static_cast<size_t>(owner)].mixer != layer.mixer) --owner;
    if (owner < 0) {
      config.refuse(fmt::format(
          "config: \"num_kv_shared_layers\" is {}, which leaves no layer of the kind of layer {} to have keys", shared,
          i));
      return;
    }
    const auto own = std::get<AttentionSpec>(layer.mixer);
    layer.mixer = SharedAttentionSpec{owner,     own.heads,  own.kv_heads, own.head_dim,
                                      own.scale, own.window, own.qkv_bias, own.rope};
    if (wide) std::get<FfnSpec>(layer.ffn).hidden *= 2;
  }
}

DecoderSpec gemma4(Config& config) {
  refuse_what_is_missing(config);
  config.set_default("head_dim", 256);
  config.set_default("max_position_embeddings", 131072);
  config.set_default("tie_word_embeddings", true);
  config.set_default("rope_parameters", default_ropes());
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
  share_keys(config, spec);
  add_experts(config, spec, activation);
  read_layer_input(config, spec, activation);
  return spec;
}

const Family text{"Gemma4ForCausalLM", gemma4};
const Family with_images{"Gemma4ForConditionalGeneration", gemma4};

}  // namespace
}  // namespace quern
