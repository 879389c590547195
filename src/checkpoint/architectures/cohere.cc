// Cohere's Command R, R7B and A. Neighbours rotate in the model too, so rows are not moved.
#include "checkpoint/gguf_translation.h"

namespace quern {
namespace {

Status command(GgufTranslation& translation) {
  TRY(translation.common());
  translation.config().set("use_qk_norm", translation.has_tensor("blk.0.attn_q_norm.weight"));
  return translation.copy_number("logit_scale", "logit_scale");
}

Status command_with_windows(GgufTranslation& translation) {
  TRY(command(translation));
  return translation.windows(4);
}

const GgufEntry first{
    {.name = "command-r", .model_type = "cohere", .class_name = "CohereForCausalLM", .translate = command}};
const GgufEntry second{{.name = "cohere2",
                        .model_type = "cohere2",
                        .class_name = "Cohere2ForCausalLM",
                        .translate = command_with_windows}};

}  // namespace
}  // namespace quern
