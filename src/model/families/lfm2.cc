// LFM2: layers of gated short convolution, some of attention between them; and its mixture of experts.
#include <algorithm>
#include <fmt/format.h>
#include <set>

#include "model/families/experts.h"
#include "model/families/family.h"
#include "ops/short_conv.h"

namespace quern {
namespace {

/// `ours` means what `theirs` says, unless it is there too.
void rename(Config& config, const char* theirs, const char* ours) {
  if (const Json* value = config.find(theirs)) config.set_default(ours, *value);
}

/// Two thirds of the given size, times a factor, up to a whole number of blocks.
int adjusted(Config& config, int hidden) {
  if (!config.flag_or("block_auto_adjust_ff_dim", true)) return hidden;
  const double factor = config.number_or("block_ffn_dim_multiplier", 1.0);
  if (!(factor > 0 && factor <= 16)) {
    config.refuse(fmt::format("config: \"block_ffn_dim_multiplier\" is {}, but must be between 0 and 16", factor));
    return hidden;
  }
  const int step = config.size_or("block_multiple_of", 256, 1 << 20);
  const int wanted = std::max(1, static_cast<int>(factor * (2 * hidden / 3)));
  return (wanted + step - 1) / step * step;
}

std::set<int64_t> listed_attention(Config& config) {
  std::set<int64_t> layers;
  const Json* listed = config.find("full_attn_idxs");
  if (listed == nullptr) return layers;
  if (!listed->is_array()) config.refuse("config: \"full_attn_idxs\" must be a list of layers");
  for (const Json& layer : listed->is_array() ? listed->items() : Json::Array()) {
    if (layer.is_integer()) {
      layers.insert(layer.as_integer());
    } else {
      config.refuse(fmt::format("config: \"full_attn_idxs\" has {}, which is no layer", layer.dump()));
    }
  }
  return layers;
}

/// What is not about the ffn.
DecoderSpec mixed(Config& config) {
  rename(config, "norm_eps", "rms_norm_eps");
  rename(config, "tie_embedding", "tie_word_embeddings");
  config.set_default("rms_norm_eps", 1e-5);
  config.set_default("tie_word_embeddings", true);
  config.set_default("rope_theta", 1e6);
  DecoderSpec spec = llama_like(config);
  spec.names = {{"operator_norm", "input_layernorm"},
                {"ffn_norm", "post_attention_layernorm"},
                {"embedding_norm", "norm"},
                {"self_attn.out_proj", "self_attn.o_proj"},
                {"q_layernorm", "q_norm"},
                {"k_layernorm", "k_norm"},
                {"feed_forward.w1", "mlp.gate_proj"},
                {"feed_forward.w3", "mlp.up_proj"},
                {"feed_forward.w2", "mlp.down_proj"},
                {"feed_forward.gate", "mlp.gate"},
                {"feed_forward.experts", "mlp.experts"},
                {"feed_forward.expert_bias", "mlp.e_score_correction_bias"}};
  each_attention(spec, [](int, AttentionSpec& attention) { attention.qk_norm = true; });
  ShortConvSpec conv;
  conv.taps = config.size_or("conv_L_cache", 3, max_conv_taps);
  conv.bias = config.flag_or("conv_bias", false);
  if (conv.taps < min_conv_taps) config.refuse("config: \"conv_L_cache\" is 1, but must be at least 2");
  if (spec.dim % conv_channel_step != 0) {
    config.refuse(fmt::format("config: \"hidden_size\" is {}, no multiple of {}", spec.dim, conv_channel_step));
  }
  const std::set<int64_t> attention = listed_attention(config);
  set_recurrent_layers(config, spec, "conv", conv, [&](int layer) { return !attention.contains(layer); });
  return spec;
}

DecoderSpec lfm2(Config& config) {
  rename(config, "block_ff_dim", "intermediate_size");
  DecoderSpec spec = mixed(config);
  for (LayerSpec& layer : spec.layers) {
    FfnSpec& ffn = std::get<FfnSpec>(layer.ffn);
    ffn.hidden = adjusted(config, ffn.hidden);
  }
  return spec;
}

DecoderSpec lfm2_moe(Config& config) {
  rename(config, "num_dense_layers", "first_k_dense_replace");
  config.set_default("first_k_dense_replace", 2);
  config.set_default("norm_topk_prob", true);
  DecoderSpec spec = mixed(config);
  MoeSpec moe = read_experts(config, "moe_intermediate_size");
  moe.router.score = RouterRule::Score::sigmoid;
  moe.router.scale = static_cast<float>(config.number_or("routed_scaling_factor", 1.0));
  moe.choice_bias = config.flag_or("use_expert_bias", true);
  set_experts_after_dense(config, spec, moe);
  return spec;
}

const Family dense{"Lfm2ForCausalLM", lfm2};
const Family experts{"Lfm2MoeForCausalLM", lfm2_moe};

}  // namespace
}  // namespace quern
