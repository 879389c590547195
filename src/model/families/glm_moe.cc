// GLM 4.5 and later: experts chosen as DeepSeek does, half of a head rotated, norms on q and k in the larger ones.
#include "model/families/experts.h"
#include "model/families/family.h"

namespace quern {
namespace {

DecoderSpec glm4_moe(Config& config) {
  config.set_default("norm_topk_prob", true);
  config.set_default("partial_rotary_factor", 0.5);
  config.set_default("rms_norm_eps", 1e-5);
  DecoderSpec spec = llama_like(config);
  const bool qk_norm = config.flag_or("use_qk_norm", false);
  each_attention(spec, [&](int, AttentionSpec& attention) {
    attention.output_bias = false;
    attention.qk_norm = qk_norm;
  });
  MoeSpec moe = read_experts(config, "moe_intermediate_size");
  moe.choice_bias = true;
  moe.router.score = RouterRule::Score::sigmoid;
  moe.router.group_score = RouterRule::GroupScore::best_two;
  read_deepseek_routing(config, moe);
  set_experts_after_dense(config, spec, moe);
  return spec;
}

const Family family{"Glm4MoeForCausalLM", glm4_moe};

}  // namespace
}  // namespace quern
