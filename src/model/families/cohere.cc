// Cohere's Command R, R7B and A: one norm before attention and ffn, which both read; neighbours rotate.
#include "model/families/family.h"

namespace quern {
namespace {

DecoderSpec command(Config& config) {
  config.set_default("tie_word_embeddings", true);
  config.set_default("logit_scale", 0.0625);
  DecoderSpec spec = llama_like(config);
  set_layer_norm(config, spec, "layer_norm_eps", false);
  spec.logit_scale = static_cast<float>(config.number_or("logit_scale", 0.0625));
  for (LayerSpec& layer : spec.layers) layer.parallel = true;
  each_attention(spec, [](int, AttentionSpec& attention) { attention.rope.interleaved = true; });
  return spec;
}

DecoderSpec cohere(Config& config) {
  config.set_default("rope_theta", 5e5);
  DecoderSpec spec = command(config);
  const bool norms = config.flag_or("use_qk_norm", false);
  each_attention(spec, [&](int, AttentionSpec& attention) { attention.qk_layer_norm = norms; });
  return spec;
}

/// Three of four layers have a window and rotate; the fourth sees all and does not.
DecoderSpec cohere2(Config& config) {
  DecoderSpec spec = command(config);
  const int pattern = config.size_or("sliding_window_pattern", 4, 1 << 10);
  set_windows(config, spec, config.count_or("sliding_window", 4096, max_context),
              [&](int layer) { return (layer + 1) % pattern != 0; });
  each_attention(spec, [](int, AttentionSpec& attention) {
    if (attention.window == 0) attention.rope = {};
  });
  return spec;
}

const Family first{"CohereForCausalLM", cohere};
const Family second{"Cohere2ForCausalLM", cohere2};

}  // namespace
}  // namespace quern
