// Llama (with experts it is Mixtral) and what is like it but for a number. Their files keep rotary pairs side by side.
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

/// Every fourth layer does not rotate, which no key says.
Status smollm3(GgufTranslation& translation) {
  TRY(translation.common());
  translation.config().set("no_rope_layer_interval", 4);
  return {};
}

/// Queries that grow, and a yarn that leaves the size of scores as it is.
Status mistral3(GgufTranslation& translation) {
  TRY(translation.common());
  ASSIGN_OR_RETURN(const auto growth, translation.positive("attention.temperature_scale"));
  ASSIGN_OR_RETURN(const auto log_multiplier, translation.positive("rope.scaling.yarn_log_multiplier"));
  const Json* scaling = translation.config().present("rope_scaling");
  if (scaling == nullptr) return {};
  Json changed = *scaling;
  if (growth) changed.set("llama_4_scaling_beta", *growth);
  if (log_multiplier) changed.set("mscale", 1.0).set("mscale_all_dim", *log_multiplier);
  translation.config().set("rope_scaling", std::move(changed));
  return {};
}

Status multipliers(GgufTranslation& translation) {
  TRY(translation.copy_number("attention.scale", "attention_multiplier"));
  TRY(translation.copy_number("embedding_scale", "embedding_multiplier"));
  TRY(translation.copy_number("residual_scale", "residual_multiplier"));
  // Granite 4 without state spaces goes by this name too; it may do without rope.
  ASSIGN_OR_RETURN(const auto rotates, translation.gguf().boolean(translation.key("rope.scaling.finetuned")));
  if (!rotates.value_or(true)) translation.config().set("position_embedding_type", "nope");
  return translation.copy_number("logit_scale", "logits_scaling");
}

Status granite(GgufTranslation& translation) {
  TRY(translation.common());
  return multipliers(translation);
}

Status granite_moe(GgufTranslation& translation) {
  TRY(translation.shape());
  TRY(translation.heads());
  TRY(translation.vocabulary());
  TRY(translation.rope());
  TRY(translation.experts());
  TRY(translation.copy_size("expert_shared_feed_forward_length", "shared_intermediate_size", 1 << 20));
  return multipliers(translation);
}

const GgufEntry first{{.name = "llama",
                       .model_type = "llama",
                       .class_name = "LlamaForCausalLM",
                       .translate = llama,
                       .rotary_pairs = true}};
const GgufEntry ministral{{.name = "mistral3",
                           .model_type = "ministral3",
                           .class_name = "Ministral3ForCausalLM",
                           .translate = mistral3,
                           .rotary_pairs = true}};
const GgufEntry smol{{.name = "smollm3",
                      .model_type = "smollm3",
                      .class_name = "SmolLM3ForCausalLM",
                      .translate = smollm3,
                      .rotary_pairs = true}};
const GgufEntry multiplied{{.name = "granite",
                            .model_type = "granite",
                            .class_name = "GraniteForCausalLM",
                            .translate = granite,
                            .rotary_pairs = true}};
const GgufEntry multiplied_experts{{.name = "granitemoe",
                                    .model_type = "granitemoe",
                                    .class_name = "GraniteMoeForCausalLM",
                                    .translate = granite_moe,
                                    .rotary_pairs = true}};

}  // namespace
}  // namespace quern
