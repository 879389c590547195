// StarCoder 2: norms that take the mean off, biases everywhere, an ffn without a gate.
#include "model/families/family.h"

namespace quern {
namespace {

DecoderSpec starcoder2(Config& config) {
  config.set_default("tie_word_embeddings", true);
  config.set_default("num_key_value_heads", 2);
  config.set_default("hidden_act", "gelu_pytorch_tanh");
  config.set_default("attention_bias", config.flag_or("use_bias", true));
  DecoderSpec spec = llama_like(config);
  set_layer_norm(config, spec, "norm_epsilon", true);
  for (LayerSpec& layer : spec.layers) {
    const auto& gated = std::get<FfnSpec>(layer.ffn);
    layer.ffn = PlainFfnSpec{gated.hidden, gated.activation, config.flag_or("use_bias", true)};
  }
  set_windows(config, spec, config.count_or("sliding_window", 0, max_context), [](int) { return true; });
  spec.names = {{"mlp.c_fc.", "mlp.up_proj."}, {"mlp.c_proj.", "mlp.down_proj."}};
  return spec;
}

const Family second{"Starcoder2ForCausalLM", starcoder2};

}  // namespace
}  // namespace quern
