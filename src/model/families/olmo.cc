// OLMo 2 and 3: norms after each block and none before, norms over all of q and of k; 3 has windows.
#include "model/families/family.h"
#include "model/families/rope_rules.h"

namespace quern {
namespace {

DecoderSpec olmo2(Config& config) {
  config.set_default("rms_norm_eps", 1e-5);
  DecoderSpec spec = llama_like(config);
  for (LayerSpec& layer : spec.layers) layer.norms = norms_after_blocks();
  each_attention(spec, [](int, AttentionSpec& attention) { attention.whole_qk_norm = true; });
  return spec;
}

/// Only layers without a window lengthen their rope.
DecoderSpec olmo3(Config& config) {
  config.set_default("rope_theta", 5e5);
  DecoderSpec spec = olmo2(config);
  set_windows(config, spec, config.count_or("sliding_window", 4096, max_context),
              [](int layer) { return (layer + 1) % 4 != 0; });
  each_attention(spec, [&](int, AttentionSpec& attention) {
    if (attention.window == 0) return;
    const RopeFrame frame{attention.head_dim, spec.max_positions, 5e5};
    const double theta =
        rope_keys(config, "sliding_attention").number("rope_theta").value_or(config.number_or("rope_theta", 5e5));
    attention.rope = plain_rope(config, frame, theta);
  });
  return spec;
}

const Family second{"Olmo2ForCausalLM", olmo2};
const Family third{"Olmo3ForCausalLM", olmo3};

}  // namespace
}  // namespace quern
