// gpt-oss: experts with biases and a clamped activation, a score in every head's softmax that has no value, and a
// window on every other layer.
#include <cmath>

#include "model/families/experts.h"
#include "model/families/family.h"

namespace quern {
namespace {

DecoderSpec gpt_oss(Config& config) {
  config.set_default("rope_theta", 150000.0);
  config.set_default("rms_norm_eps", 1e-5);
  config.set_default("attention_bias", true);
  config.set_default("head_dim", 64);
  if (config.find("num_experts_per_tok") == nullptr && config.find("experts_per_token") != nullptr) {
    config.set_default("num_experts_per_tok", *config.find("experts_per_token"));
  }
  DecoderSpec spec = llama_like(config);
  each_attention(spec, [](int, AttentionSpec& attention) { attention.sinks = true; });
  const int window = config.count_or("sliding_window", 128, 1 << 27);
  set_windows(config, spec, window, [](int layer) { return layer % 2 == 0; });

  MoeSpec moe = read_experts(config, "intermediate_size");
  moe.router.renormalize = true;  // a softmax of the chosen logits
  moe.router_bias = true;
  moe.bias = true;
  moe.alternating = true;
  moe.transposed = true;
  moe.activation = Activation::clamped_swiglu;
  const auto is = [](double value, float constant) { return std::fabs(value - static_cast<double>(constant)) < 1e-6; };
  if (!is(config.number_or("swiglu_limit", swiglu_limit), swiglu_limit) ||
      !is(config.number_or("swiglu_alpha", swiglu_alpha), swiglu_alpha)) {
    config.refuse("config: \"swiglu_limit\" must be 7 and \"swiglu_alpha\" 1.702");
  }
  for (LayerSpec& layer : spec.layers) layer.ffn = moe;
  return spec;
}

const Family family{"GptOssForCausalLM", gpt_oss};

}  // namespace
}  // namespace quern
