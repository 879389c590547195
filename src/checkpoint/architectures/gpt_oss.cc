// gpt-oss.
#include "checkpoint/gguf_translation.h"

namespace quern {
namespace {

constexpr GgufName names[] = {{"post_attention_norm", "post_attention_layernorm"}, {"attn_sinks", "self_attn.sinks"}};

Status gpt_oss(GgufTranslation& translation) {
  TRY(translation.shape());
  TRY(translation.heads());
  TRY(translation.vocabulary());
  TRY(translation.rope());
  // The model was made with a range of frequencies that is not rounded; files do not say so.
  translation.change_rope_scaling({{"truncate", false}});
  TRY(translation.experts());
  TRY(translation.copy_size("expert_feed_forward_length", "intermediate_size", 1 << 20));
  return translation.windows(2);
}

const GgufEntry entry{{.name = "gpt-oss",
                       .model_type = "gpt_oss",
                       .class_name = "GptOssForCausalLM",
                       .translate = gpt_oss,
                       .names = names}};

}  // namespace
}  // namespace quern
