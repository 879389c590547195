// Gemma 4. What differs between layers with a window and full ones is in lists and in keys of its own.
#include <algorithm>
#include <fmt/format.h>
#include <vector>

#include "checkpoint/gguf_translation.h"

namespace quern {
namespace {

constexpr GgufName names[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
    {"layer_output_scale", "layer_scalar"},
};

/// Counts of kv heads, one for each layer.
Result<std::vector<int64_t>> kv_heads(const GgufTranslation& translation) {
  const std::string key = translation.key("attention.head_count_kv");
  ASSIGN_OR_RETURN(auto counts, translation.gguf().integers(key));
  if (!counts) return translation.gguf().refuse(key, "is missing");
  const auto layers = static_cast<size_t>(translation.layers());
  if (counts->size() == 1) counts->resize(layers, counts->front());
  if (counts->size() != layers) return translation.gguf().refuse(key, "has not one entry a layer");
  return *counts;
}

/// Full layers rotate their first pairs; the others stand still, as their frequencies are divided by 1e30.
Result<double> rotating_part(const GgufTranslation& translation, int64_t pairs) {
  ASSIGN_OR_RETURN(const Json::Array factors, translation.rope_factors("rope_freqs.weight", pairs));
  const auto still = std::find_if(factors.begin(), factors.end(), [](const Json& f) { return f.as_number() != 1.0; });
  if (std::any_of(still, factors.end(), [](const Json& factor) { return factor.as_number() < 1e20; })) {
    return Error{fmt::format("{}: tensor \"rope_freqs.weight\" is not 1 for some pairs and 1e30 for the rest",
                             translation.gguf().path())};
  }
  return static_cast<double>(still - factors.begin()) / static_cast<double>(pairs);
}

/// `full` and `sliding` are the first layers of their kind.
Status heads(GgufTranslation& translation, size_t full, size_t sliding) {
  Json& config = translation.config();
  ASSIGN_OR_RETURN(const int64_t count, translation.needed_size("attention.head_count", 1 << 10));
  ASSIGN_OR_RETURN(const std::vector<int64_t> kv, kv_heads(translation));
  ASSIGN_OR_RETURN(const int64_t head_dim, translation.needed_size("attention.key_length", 1 << 12));
  ASSIGN_OR_RETURN(const auto local_dim, translation.size("attention.key_length_swa", 1 << 12));
  config.set("num_attention_heads", count).set("num_key_value_heads", kv[sliding]);
  config.set("num_global_key_value_heads", kv[full]);
  config.set("head_dim", local_dim.value_or(head_dim)).set("global_head_dim", head_dim);
  config.set("attention_k_eq_v", !translation.has_tensor(fmt::format("blk.{}.attn_v.weight", full)));

  ASSIGN_OR_RETURN(const auto theta, translation.positive("rope.freq_base"));
  ASSIGN_OR_RETURN(const auto local_theta, translation.positive("rope.freq_base_swa"));
  Json rope;
  rope.set("rope_type", "default").set("rope_theta", theta.value_or(1e6));
  if (translation.has_tensor("rope_freqs.weight")) {
    ASSIGN_OR_RETURN(const double part, rotating_part(translation, head_dim / 2));
    rope.set("rope_type", "proportional").set("partial_rotary_factor", part);
  }
  const Json local = Json().set("rope_type", "default").set("rope_theta", local_theta.value_or(1e4));
  config.set("rope_parameters", Json().set("full_attention", std::move(rope)).set("sliding_attention", local));
  return {};
}

Status gemma4(GgufTranslation& translation) {
  TRY(translation.shape());
  TRY(translation.vocabulary());
  TRY(translation.windows(6));
  TRY(translation.dense_ffn());
  const Json* types = translation.config().find("layer_types");
  if (types == nullptr) return translation.gguf().refuse(translation.key("attention.sliding_window"), "is missing");
  const auto first = [&](const char* kind) {
    const auto& items = types->items();
    return static_cast<size_t>(std::find(items.begin(), items.end(), Json(kind)) - items.begin());
  };
  const size_t last = types->items().size() - 1;
  TRY(heads(translation, std::min(first("full_attention"), last), std::min(first("sliding_attention"), last)));
  ASSIGN_OR_RETURN(const auto per_layer,
                   translation.gguf().integer(translation.key("embedding_length_per_layer_input")));
  ASSIGN_OR_RETURN(const auto shared, translation.gguf().integer(translation.key("attention.shared_kv_layers")));
  translation.config().set("hidden_size_per_layer_input", per_layer.value_or(0));
  translation.config().set("num_kv_shared_layers", shared.value_or(0));
  translation.config().set("hidden_activation", "gelu_pytorch_tanh");
  return translation.copy_number("final_logit_softcapping", "final_logit_softcapping");
}

const GgufEntry fourth{{.name = "gemma4",
                        .model_type = "gemma4_text",
                        .class_name = "Gemma4ForCausalLM",
                        .translate = gemma4,
                        .names = names}};

}  // namespace
}  // namespace quern
