// Qwen 2 and 3.
#include "checkpoint/gguf_translation.h"

namespace quern {
namespace {

Status common(GgufTranslation& translation) { return translation.common(); }

Status with_experts(GgufTranslation& translation) {
  TRY(translation.shape());
  TRY(translation.heads());
  TRY(translation.vocabulary());
  TRY(translation.rope());
  return translation.experts();
}

Status second_with_experts(GgufTranslation& translation) {
  TRY(with_experts(translation));
  translation.config().set("qkv_bias", translation.has_tensor("blk.0.attn_q.bias"));
  return translation.copy_size("expert_shared_feed_forward_length", "shared_expert_intermediate_size", 1 << 20);
}

Status third_with_experts(GgufTranslation& translation) {
  translation.config().set("norm_topk_prob", true);
  return with_experts(translation);
}

const GgufEntry second{{.name = "qwen2", .model_type = "qwen2", .class_name = "Qwen2ForCausalLM", .translate = common}};
const GgufEntry second_moe{{.name = "qwen2moe",
                            .model_type = "qwen2_moe",
                            .class_name = "Qwen2MoeForCausalLM",
                            .translate = second_with_experts}};
const GgufEntry third{{.name = "qwen3", .model_type = "qwen3", .class_name = "Qwen3ForCausalLM", .translate = common}};
const GgufEntry third_moe{{.name = "qwen3moe",
                           .model_type = "qwen3_moe",
                           .class_name = "Qwen3MoeForCausalLM",
                           .translate = third_with_experts}};

}  // namespace
}  // namespace quern
