// GPT-2 and StarCoder 2: no gate in the ffn.
#include "checkpoint/gguf_translation.h"

namespace quern {
namespace {

Status common(GgufTranslation& translation) { return translation.common(); }

Status starcoder2(GgufTranslation& translation) {
  TRY(translation.common());
  translation.config().set("use_bias", translation.has_tensor("blk.0.ffn_up.bias"));
  ASSIGN_OR_RETURN(const auto window, translation.size("attention.sliding_window", int64_t{1} << 27));
  if (window) translation.config().set("sliding_window", *window);
  return {};
}

const GgufEntry gpt{{.name = "gpt2", .model_type = "gpt2", .class_name = "GPT2LMHeadModel", .translate = common}};
const GgufEntry starcoder{
    {.name = "starcoder2", .model_type = "starcoder2", .class_name = "Starcoder2ForCausalLM", .translate = starcoder2}};

}  // namespace
}  // namespace quern
