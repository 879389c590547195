// GLM 4 dense. "ffn_up" holds gate and up; neighbours rotate in the model too, so rows are not moved.
#include "checkpoint/gguf_translation.h"

namespace quern {
namespace {

constexpr GgufName older_names[] = {{"ffn_up", "mlp.gate_up_proj"}};
constexpr GgufName names[] = {
    {"ffn_up", "mlp.gate_up_proj"},
    {"post_attention_norm", "post_self_attn_layernorm"},
    {"post_ffw_norm", "post_mlp_layernorm"},
};

Status common(GgufTranslation& translation) { return translation.common(); }

const GgufEntry fourth{
    {.name = "glm4", .model_type = "glm4", .class_name = "Glm4ForCausalLM", .translate = common, .names = names}};

const GgufEntry older{{.name = "chatglm",
                       .model_type = "glm",
                       .class_name = "GlmForCausalLM",
                       .translate = common,
                       .names = older_names}};

}  // namespace
}  // namespace quern
