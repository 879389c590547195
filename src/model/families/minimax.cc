// MiniMax M2: experts chosen by sigmoids with a bias, norms over all of q and of k, a part of each head rotated.
#include "model/families/experts.h"
#include "model/families/family.h"
#include "ops/attention.h"

namespace quern {
namespace {

DecoderSpec minimax_m2(Config& config) {
  config.set_default("rope_theta", 5e6);
  config.set_default("head_dim", 128);
  const double rotated = config.number_or("rotary_dim", 0.0);
  if (rotated > 0) config.set_default("partial_rotary_factor", rotated / config.size("head_dim", max_head_dim));
  DecoderSpec spec = llama_like(config);
  each_attention(spec, [](int, AttentionSpec& attention) { attention.whole_qk_norm = true; });
  MoeSpec moe = read_experts(config, "intermediate_size");
  moe.router.score = RouterRule::Score::sigmoid;
  moe.router.renormalize = true;
  moe.choice_bias = true;
  for (LayerSpec& layer : spec.layers) layer.ffn = moe;
  return spec;
}

const Family family{"MiniMaxM2ForCausalLM", minimax_m2};

}  // namespace
}  // namespace quern
