// OLMo 2, and 3 by the same name: it has windows.
#include "checkpoint/gguf_translation.h"

namespace quern {
namespace {

constexpr GgufName names[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};

Status olmo(GgufTranslation& translation) {
  TRY(translation.common());
  if (!translation.gguf().has(translation.key("attention.sliding_window"))) return {};
  translation.config().set("architectures", Json::Array{"Olmo3ForCausalLM"}).set("model_type", "olmo3");
  return translation.windows(4);
}

const GgufEntry second{
    {.name = "olmo2", .model_type = "olmo2", .class_name = "Olmo2ForCausalLM", .translate = olmo, .names = names}};

}  // namespace
}  // namespace quern
