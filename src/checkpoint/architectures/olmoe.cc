// OLMoE and MiniMax M2: norms over all of q and of k, and experts.
#include "checkpoint/gguf_translation.h"

namespace quern {
namespace {

/// The size of experts is under the key of a plain ffn in older files.
Status experts_only(GgufTranslation& translation) {
  TRY(translation.shape());
  TRY(translation.heads());
  TRY(translation.vocabulary());
  TRY(translation.rope());
  TRY(translation.experts());
  return translation.copy_size("expert_feed_forward_length", "intermediate_size", 1 << 20);
}

const GgufEntry olmoe{
    {.name = "olmoe", .model_type = "olmoe", .class_name = "OlmoeForCausalLM", .translate = experts_only}};
const GgufEntry minimax{{.name = "minimax-m2",
                         .model_type = "minimax_m2",
                         .class_name = "MiniMaxM2ForCausalLM",
                         .translate = experts_only}};

}  // namespace
}  // namespace quern
