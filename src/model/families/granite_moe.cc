// Granite 3 with experts: Granite's multipliers, and a softmax of the chosen logits. It may have an ffn beside them
// that every token goes through.
#include "model/families/experts.h"
#include "model/families/family.h"

namespace quern {
namespace {

DecoderSpec granite_moe(Config& config) {
  DecoderSpec spec = find_family("GraniteForCausalLM")(config);
  MoeSpec moe = read_experts(config, "intermediate_size");
  moe.router.renormalize = true;
  moe.shared_hidden = config.count_or("shared_intermediate_size", 0, 1 << 20);
  spec.names = {{"shared_mlp.input_linear.", "block_sparse_moe.shared_experts.gate_up_proj."},
                {"shared_mlp.output_linear.", "block_sparse_moe.shared_experts.down_proj."}};
  for (LayerSpec& layer : spec.layers) layer.ffn = moe;
  return spec;
}

const Family family{"GraniteMoeForCausalLM", granite_moe};
const Family with_shared{"GraniteMoeSharedForCausalLM", granite_moe};

}  // namespace
}  // namespace quern
