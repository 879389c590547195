// OLMoE: experts, and norms over all of q and of k.
#include "model/families/experts.h"
#include "model/families/family.h"

namespace quern {
namespace {

DecoderSpec olmoe(Config& config) {
  config.set_default("rms_norm_eps", 1e-5);
  if (config.find("clip_qkv") != nullptr) config.refuse("config: \"clip_qkv\" is not supported; it must be null");
  DecoderSpec spec = llama_like(config);
  each_attention(spec, [](int, AttentionSpec& attention) { attention.whole_qk_norm = true; });
  const MoeSpec moe = read_experts(config, "intermediate_size");
  for (LayerSpec& layer : spec.layers) layer.ffn = moe;
  return spec;
}

const Family family{"OlmoeForCausalLM", olmoe};

}  // namespace
}  // namespace quern
