// DeepSeek 2 and 3, which differ in how scores are made.
#include "checkpoint/gguf_translation.h"

namespace quern {
namespace {

constexpr int64_t sigmoid_gating = 2;

constexpr GgufName names[] = {
    {"attn_q_a", "self_attn.q_a_proj"},
    {"attn_q_a_norm", "self_attn.q_a_layernorm"},
    {"attn_q_b", "self_attn.q_b_proj"},
    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
    {"attn_kv_b", "self_attn.kv_b_proj"},
    {"attn_k_b", "self_attn.k_b_proj"},
    {"attn_v_b", "self_attn.v_b_proj"},
};

Status deepseek2(GgufTranslation& translation) {
  TRY(translation.shape());
  TRY(translation.latent_heads());
  TRY(translation.vocabulary());
  TRY(translation.deepseek_routing());
  Json& config = translation.config();
  ASSIGN_OR_RETURN(const auto gating, translation.gguf().integer(translation.key("expert_gating_func")));
  const bool third = gating.value_or(0) == sigmoid_gating;
  if (third) config.set("architectures", Json::Array{"DeepseekV3ForCausalLM"});
  if (!config.has("norm_topk_prob")) config.set("norm_topk_prob", false);
  if (!third && config.integer("n_group").value_or(1) > 1) config.set("topk_method", "group_limited_greedy");
  return {};
}

const GgufEntry entry{{.name = "deepseek2",
                       .model_type = "deepseek_v2",
                       .class_name = "DeepseekV2ForCausalLM",
                       .translate = deepseek2,
                       .names = names}};

}  // namespace
}  // namespace quern
