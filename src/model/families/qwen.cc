// Qwen 2 (bias on q, k and v), Qwen 3 (norms on q and k) and their mixtures of experts.
#include "model/families/experts.h"
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

DecoderSpec qwen2_moe(Config& config) {
  DecoderSpec spec = llama_like(config);
  const bool bias = config.flag_or("qkv_bias", true);
  each_attention(spec, [&](int, AttentionSpec& attention) {
    attention.qkv_bias = bias;
    attention.output_bias = false;
  });
  set_qwen_windows(config, spec);
  MoeSpec moe = read_experts(config, "moe_intermediate_size");
  moe.shared_hidden = config.size("shared_expert_intermediate_size", 1 << 20);
  moe.shared_gate = true;
  set_experts_in_steps(config, spec, moe);
  return spec;
}

DecoderSpec qwen3_moe(Config& config) {
  if (config.find("intermediate_size") == nullptr) config.set_default("intermediate_size", 1);
  DecoderSpec spec = qwen3(config);
  set_experts_in_steps(config, spec, read_experts(config, "moe_intermediate_size"));
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
const Family second_experts{"Qwen2MoeForCausalLM", qwen2_moe};
const Family third{"Qwen3ForCausalLM", qwen3};
const Family scores{"Qwen3ForSequenceClassification", qwen3_scores};
const Family third_experts{"Qwen3MoeForCausalLM", qwen3_moe};

}  // namespace
}  // namespace quern
