// Qwen 2 and 3.
#include "checkpoint/gguf_translation.h"

namespace quern {
namespace {

Status common(GgufTranslation& translation) { return translation.common(); }

Status experts(GgufTranslation& translation) {
  TRY(translation.shape());
  TRY(translation.heads());
  TRY(translation.vocabulary());
  TRY(translation.rope());
  ASSIGN_OR_RETURN(const int64_t count, translation.needed_size("expert_count", 1 << 12));
  ASSIGN_OR_RETURN(const int64_t used, translation.needed_size("expert_used_count", count));
  ASSIGN_OR_RETURN(const int64_t hidden, translation.needed_size("expert_feed_forward_length", 1 << 20));
  ASSIGN_OR_RETURN(const auto renormalize, translation.gguf().boolean(translation.key("expert_weights_norm")));
  Json& config = translation.config();
  config.set("num_experts", count).set("num_experts_per_tok", used).set("moe_intermediate_size", hidden);
  config.set("norm_topk_prob", renormalize.value_or(true));
  return {};
}

const GgufEntry second{{.name = "qwen2", .model_type = "qwen2", .class_name = "Qwen2ForCausalLM", .translate = common}};
const GgufEntry third{{.name = "qwen3", .model_type = "qwen3", .class_name = "Qwen3ForCausalLM", .translate = common}};
const GgufEntry third_moe{
    {.name = "qwen3moe", .model_type = "qwen3_moe", .class_name = "Qwen3MoeForCausalLM", .translate = experts}};

}  // namespace
}  // namespace quern
