// Gemma. Its norms hold the 1 that other files leave to the model.
#include "checkpoint/gguf_translation.h"

namespace quern {
namespace {

/// Norms stand after attention and ffn as well, so the norm before the ffn has another name.
constexpr GgufName names_between_norms[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};

/// The file may say the scale of queries; else it is that of their heads, but for the one size of `wide_layers` layers.
Status query_scale(GgufTranslation& translation, int64_t wide_layers) {
  ASSIGN_OR_RETURN(const auto scale, translation.positive("attention.scale"));
  const bool wide = translation.layers() == wide_layers;
  const int64_t scalar = wide ? translation.hidden() / translation.attention_heads() : translation.head_dim();
  translation.config().set("query_pre_attn_scalar", scale ? Json(1.0 / (*scale * *scale)) : Json(scalar));
  return {};
}

Status gemma(GgufTranslation& translation) {
  TRY(translation.common());
  translation.config().set("hidden_activation", "gelu_pytorch_tanh");
  return {};
}

Status gemma2(GgufTranslation& translation) {
  TRY(gemma(translation));
  TRY(query_scale(translation, 46));
  TRY(translation.copy_number("final_logit_softcapping", "final_logit_softcapping"));
  TRY(translation.copy_number("attn_logit_softcapping", "attn_logit_softcapping"));
  return translation.windows(2);
}

Status gemma3(GgufTranslation& translation) {
  TRY(gemma(translation));
  TRY(query_scale(translation, 62));
  TRY(translation.copy_number("final_logit_softcapping", "final_logit_softcapping"));
  ASSIGN_OR_RETURN(const auto local_theta, translation.positive("rope.freq_base_swa"));
  translation.config().set("rope_local_base_freq", local_theta.value_or(10000.0));
  return translation.windows(6);
}

Status gemma_embedding(GgufTranslation& translation) {
  TRY(gemma3(translation));
  translation.config().set("use_bidirectional_attention", true);
  return {};
}

const GgufEntry first{{.name = "gemma", .model_type = "gemma", .class_name = "GemmaForCausalLM", .translate = gemma}};
const GgufEntry second{{.name = "gemma2",
                        .model_type = "gemma2",
                        .class_name = "Gemma2ForCausalLM",
                        .translate = gemma2,
                        .names = names_between_norms}};
const GgufEntry third{{.name = "gemma3",
                       .model_type = "gemma3_text",
                       .class_name = "Gemma3ForCausalLM",
                       .translate = gemma3,
                       .names = names_between_norms}};
const GgufEntry embedding{{.name = "gemma-embedding",
                           .model_type = "gemma3_text",
                           .class_name = "Gemma3TextModel",
                           .translate = gemma_embedding,
                           .names = names_between_norms}};

}  // namespace
}  // namespace quern
