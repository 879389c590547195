// Mixtral: a Mistral whose feed-forward parts are experts.
#include "model/families/experts.h"
#include "model/families/family.h"

namespace quern {
namespace {

DecoderSpec mixtral(Config& config) {
  config.set_default("rope_theta", 1e6);
  config.set_default("rms_norm_eps", 1e-5);
  DecoderSpec spec = llama_like(config);
  const int window = config.count_or("sliding_window", 0, 1 << 27);
  set_windows(config, spec, window, [](int) { return true; });
  MoeSpec moe = read_experts(config, "intermediate_size");
  moe.router.renormalize = true;
  for (LayerSpec& layer : spec.layers) layer.ffn = moe;
  return spec;
}

const Family family{"MixtralForCausalLM", mixtral};

}  // namespace
}  // namespace quern
