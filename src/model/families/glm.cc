// GLM 4 dense: neighbours of half a head rotate, biases on q, k and v; the later ones have norms after each block too.
#include "model/families/family.h"

namespace quern {
namespace {

DecoderSpec glm(Config& config) {
  config.set_default("head_dim", 128);
  config.set_default("num_key_value_heads", 2);
  config.set_default("rms_norm_eps", 1.5625e-7);
  config.set_default("partial_rotary_factor", 0.5);
  config.set_default("attention_bias", true);
  DecoderSpec spec = llama_like(config);
  each_attention(spec, [](int, AttentionSpec& attention) {
    attention.output_bias = false;
    attention.rope.interleaved = true;
  });
  return spec;
}

DecoderSpec glm4(Config& config) {
  DecoderSpec spec = glm(config);
  for (LayerSpec& layer : spec.layers) {
    layer.norms = {"input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"};
  }
  return spec;
}

const Family older{"GlmForCausalLM", glm};
const Family newer{"Glm4ForCausalLM", glm4};

}  // namespace
}  // namespace quern
