// Granite 3 with experts: Granite's multipliers, and a softmax of the chosen logits.
#include "model/families/experts.h"
#include "model/families/family.h"

namespace quern {
namespace {

DecoderSpec granite_moe(Config& config) {
  DecoderSpec spec = find_family("GraniteForCausalLM")(config);
  MoeSpec moe = read_experts(config, "intermediate_size");
  moe.router.renormalize = true;
  for (LayerSpec& layer : spec.layers) layer.ffn = moe;
  return spec;
}

const Family family{"GraniteMoeForCausalLM", granite_moe};

}  // namespace
}  // namespace quern
