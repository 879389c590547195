// Qwen 2 (bias on q, k and v), Qwen 3 (norms on q and k) and its mixture of experts.
#include <algorithm>
#include <fmt/format.h>

#include "model/families/family.h"

namespace quern {
namespace {

void set_qwen_windows(Config& config, DecoderSpec& spec) {
  const bool used = config.flag_or("use_sliding_window", false);
  const int window = used ? config.count_or("sliding_window", 0, 1 << 27) : 0;
  const int first = config.count_or("max_window_layers", 28, 1 << 20);
  set_windows(config, spec, window, [&](int layer) { return layer >= first; });
}

DecoderSpec qwen2(Config& config) {
  DecoderSpec spec = llama_like(config);
  each_attention(spec, [](int, AttentionSpec& attention) {
    attention.qkv_bias = true;
    attention.output_bias = false;
  });
  set_qwen_windows(config, spec);
  return spec;
}

DecoderSpec qwen3(Config& config) {
  DecoderSpec spec = llama_like(config);
  each_attention(spec, [](int, AttentionSpec& attention) { attention.qk_norm = true; });
  set_qwen_windows(config, spec);
  return spec;
}

MoeSpec read_experts(Config& config) {
  MoeSpec moe;
  const char* key = config.find("num_experts") != nullptr ? "num_experts" : "num_local_experts";
  moe.experts = config.size(key, 1 << 12);
  moe.used = config.size("num_experts_per_tok", 1 << 12);
  if (moe.used > moe.experts) {
    config.refuse(
        fmt::format("config: \"num_experts_per_tok\" is {}, more than the {} experts", moe.used, moe.experts));
  }
  moe.hidden = config.size("moe_intermediate_size", 1 << 20);
  moe.renormalize = config.flag_or("norm_topk_prob", false);
  moe.activation = config.activation("hidden_act", "silu");
  return moe;
}

/// Layers that "mlp_only_layers" lists keep a plain ffn.
std::vector<bool> dense_layers(Config& config, size_t layers) {
  std::vector<bool> dense(layers);
  const Json* listed = config.find("mlp_only_layers");
  if (listed == nullptr) return dense;
  if (!listed->is_array()) {
    config.refuse("config: \"mlp_only_layers\" must be a list of layers");
    return dense;
  }
  for (const Json& layer : listed->items()) {
    if (!layer.is_integer() || layer.as_integer() < 0 || layer.as_integer() >= static_cast<int64_t>(layers)) {
      config.refuse(fmt::format("config: \"mlp_only_layers\" has {}, which is no layer", layer.dump()));
      return dense;
    }
    dense[static_cast<size_t>(layer.as_integer())] = true;
  }
  return dense;
}

DecoderSpec qwen3_moe(Config& config) {
  if (config.find("intermediate_size") == nullptr) config.set_default("intermediate_size", 1);
  DecoderSpec spec = qwen3(config);
  const MoeSpec moe = read_experts(config);
  const int step = config.size_or("decoder_sparse_step", 1, 1 << 12);
  const std::vector<bool> dense = dense_layers(config, spec.layers.size());
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (!dense[i] && (i + 1) % static_cast<size_t>(step) == 0) spec.layers[i].ffn = moe;
  }
  return spec;
}

DecoderSpec qwen3_scores(Config& config) {
  DecoderSpec spec = qwen3(config);
  spec.pooler = PoolerSpec{Pooling::last, HeadSpec{}};
  spec.pooler->head->output = "score";
  spec.pooler->head->labels = read_labels(config);
  return spec;
}

const Family second{"Qwen2ForCausalLM", qwen2};
const Family third{"Qwen3ForCausalLM", qwen3};
const Family scores{"Qwen3ForSequenceClassification", qwen3_scores};
const Family experts{"Qwen3MoeForCausalLM", qwen3_moe};

}  // namespace
}  // namespace quern
