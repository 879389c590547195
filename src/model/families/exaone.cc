// EXAONE 4: norms after each block and none before, norms on the heads of q and k; with windows, only their layers
// rotate.
#include "model/families/family.h"

namespace quern {
namespace {

/// Whether a layer has a window: every so many layers one has none, or letters say it, L and G in turn.
bool slides(Config& config, int layer) {
  const Json* pattern = config.find("sliding_window_pattern");
  if (pattern != nullptr && pattern->is_string() && !pattern->as_string().empty()) {
    return pattern->as_string()[static_cast<size_t>(layer) % pattern->as_string().size()] == 'L';
  }
  return (layer + 1) % config.size_or("sliding_window_pattern", 4, 1 << 10) != 0;
}

DecoderSpec exaone4(Config& config) {
  config.set_default("rms_norm_eps", 1e-5);
  DecoderSpec spec = llama_like(config);
  for (LayerSpec& layer : spec.layers) layer.norms = norms_after_blocks();
  const int window = config.count_or("sliding_window", 0, max_context);
  if (window > 0) set_windows(config, spec, window, [&](int layer) { return slides(config, layer); });
  each_attention(spec, [&](int, AttentionSpec& attention) {
    attention.qk_norm = true;
    if (window > 0 && attention.window == 0) attention.rope = {};
  });
  return spec;
}

const Family fourth{"Exaone4ForCausalLM", exaone4};

}  // namespace
}  // namespace quern
