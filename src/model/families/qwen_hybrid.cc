// Qwen3-Next and Qwen 3.5: layers of gated delta net, and one of attention with a gate on its output after every few.
#include <fmt/format.h>

#include "model/families/experts.h"
#include "model/families/family.h"
#include "ops/delta_net.h"
#include "ops/short_conv.h"

namespace quern {
namespace {

DeltaNetSpec read_delta_net(Config& config) {
  DeltaNetSpec spec;
  spec.key_heads = config.size_or("linear_num_key_heads", 16, 1 << 10);
  spec.value_heads = config.size_or("linear_num_value_heads", 32, 1 << 10);
  spec.key_dim = config.size_or("linear_key_head_dim", 128, max_delta_key_dim);
  spec.value_dim = config.size_or("linear_value_head_dim", 128, 1 << 12);
  spec.taps = config.size_or("linear_conv_kernel_dim", 4, max_conv_taps);
  spec.tiled = config.flag_or("linear_value_heads_tiled", false);
  if (spec.value_heads % spec.key_heads != 0) {
    config.refuse(fmt::format("config: \"linear_num_value_heads\" is {}, no multiple of \"linear_num_key_heads\", {}",
                              spec.value_heads, spec.key_heads));
  }
  if (spec.key_dim % delta_dim_step != 0 || spec.value_dim % delta_dim_step != 0) {
    config.refuse(fmt::format(
        "config: \"linear_key_head_dim\" is {} and \"linear_value_head_dim\" {}, but must be multiples of {}",
        spec.key_dim, spec.value_dim, delta_dim_step));
  }
  if (spec.taps < min_conv_taps) config.refuse("config: \"linear_conv_kernel_dim\" is 1, but must be at least 2");
  return spec;
}

/// What is not about experts.
DecoderSpec hybrid(Config& config) {
  config.set_default("partial_rotary_factor", 0.25);
  config.set_default("head_dim", 256);
  DecoderSpec spec = llama_like(config);
  spec.norm.offset = 1.0F;
  if (config.flag_or("attention_bias", false)) {
    config.refuse(
        "config: \"attention_bias\" is true, which is not supported beside a gate on the output of attention");
  }
  const Activation activation = config.activation("hidden_act", "silu");
  if (activation != Activation::silu) config.refuse("config: \"hidden_act\" must be silu in a gated delta net");
  each_attention(spec, [](int, AttentionSpec& attention) { attention.qk_norm = attention.output_gate = true; });
  const int interval = config.size_or("full_attention_interval", 4, 1 << 10);
  set_recurrent_layers(config, spec, "linear_attention", read_delta_net(config),
                       [&](int layer) { return (layer + 1) % interval != 0; });
  return spec;
}

DecoderSpec with_experts(Config& config) {
  if (config.find("intermediate_size") == nullptr) config.set_default("intermediate_size", 1);
  config.set_default("norm_topk_prob", true);
  DecoderSpec spec = hybrid(config);
  MoeSpec moe = read_experts(config, "moe_intermediate_size");
  moe.shared_hidden = config.size("shared_expert_intermediate_size", 1 << 20);
  moe.shared_gate = true;
  set_experts_in_steps(config, spec, moe);
  return spec;
}

const Family next{"Qwen3NextForCausalLM", with_experts};
const Family dense{"Qwen3_5ForCausalLM", hybrid};
const Family dense_with_images{"Qwen3_5ForConditionalGeneration", hybrid};
const Family experts{"Qwen3_5MoeForCausalLM", with_experts};
const Family experts_with_images{"Qwen3_5MoeForConditionalGeneration", with_experts};

}  // namespace
}  // namespace quern
