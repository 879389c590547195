// Llama; with experts it is Mixtral.
#include "checkpoint/gguf_translation.h"

namespace quern {
namespace {

Status llama(GgufTranslation& translation) {
  ASSIGN_OR_RETURN(const auto experts, translation.gguf().integer(translation.key("expert_count")));
  if (experts.value_or(0) == 0) return translation.common();
  TRY(translation.shape());
  TRY(translation.heads());
  TRY(translation.vocabulary());
  TRY(translation.rope());
  TRY(translation.experts());
  // Files may have the size of experts under the key of a plain ffn.
  TRY(translation.copy_size("expert_feed_forward_length", "intermediate_size", 1 << 20));
  translation.config().set("architectures", Json::Array{"MixtralForCausalLM"});
  return {};
}

const GgufEntry entry{{.name = "llama",
                       .model_type = "llama",
                       .class_name = "LlamaForCausalLM",
                       .translate = llama,
                       .rotary_pairs = true}};

}  // namespace
}  // namespace quern
