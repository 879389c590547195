// GLM 4.5 and later.
#include "checkpoint/gguf_translation.h"

namespace quern {
namespace {

constexpr GgufName names[] = {{"post_attention_norm", "post_attention_layernorm"}};

Status glm4moe(GgufTranslation& translation) {
  TRY(translation.shape());
  TRY(translation.heads());
  TRY(translation.vocabulary());
  TRY(translation.rope());
  TRY(translation.deepseek_routing());
  Json& config = translation.config();
  config.set("use_qk_norm", translation.has_tensor("blk.0.attn_q_norm.weight"));
  // The layers that draft are counted too.
  ASSIGN_OR_RETURN(const auto drafting, translation.size("nextn_predict_layers", translation.layers() - 1));
  config.set("num_hidden_layers", translation.layers() - drafting.value_or(0));
  return {};
}

const GgufEntry entry{{.name = "glm4moe",
                       .model_type = "glm4_moe",
                       .class_name = "Glm4MoeForCausalLM",
                       .translate = glm4moe,
                       .names = names}};

}  // namespace
}  // namespace quern
