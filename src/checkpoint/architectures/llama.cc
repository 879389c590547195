// Llama.
#include "checkpoint/gguf_translation.h"

namespace quern {
namespace {

Status common(GgufTranslation& translation) { return translation.common(); }

const GgufEntry llama{{.name = "llama",
                       .model_type = "llama",
                       .class_name = "LlamaForCausalLM",
                       .translate = common,
                       .rotary_pairs = true}};

}  // namespace
}  // namespace quern
