// EXAONE 4.
#include "checkpoint/gguf_translation.h"

namespace quern {
namespace {

constexpr GgufName names[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};

Status exaone4(GgufTranslation& translation) {
  TRY(translation.common());
  return translation.windows(4);
}

const GgufEntry fourth{{.name = "exaone4",
                        .model_type = "exaone4",
                        .class_name = "Exaone4ForCausalLM",
                        .translate = exaone4,
                        .names = names}};

}  // namespace
}  // namespace quern
