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
    {"per_layer_token_embd", "model.embed_tokens_per_layer"},
    {"per_layer_model_proj", "model.per_layer_model_projection"},
    {"per_layer_proj_norm", "model.per_layer_projection_norm"},
    {"inp_gate", "per_layer_input_gate"},
    {"proj", "per_layer_projection"},
    {"post_norm", "post_per_layer_input_norm"},
    {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
    {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
    {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
    {"ffn_gate_inp", "router.proj"},
    {"ffn_gate_inp.scale", "router.scale"},
    {"ffn_gate_up_exps", "experts.gate_up_proj"},
    {"ffn_gate_exps", "experts.gate_proj"},
    {"ffn_up_exps", "experts.up_proj"},
    {"ffn_down_exps", "experts.down_proj"},
    {"ffn_down_exps.scale", "router.per_expert_scale"},
};

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
  ASSIGN_OR_RETURN(const std::vector<int64_t> kv, translation.of_layers("attention.head_count_kv", 1 << 10));
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

/// Layers that share keys may have ffns of twice the size.
Status ffns(GgufTranslation& translation, int64_t shared) {
  constexpr std::string_view key = "feed_forward_length";
  Json& config = translation.config();
  ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, translation.of_layers(key, 1 << 20));
  const auto own = static_cast<size_t>(translation.layers() - shared);
  const int64_t last = sizes.back();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == (i < own ? sizes.front() : last)) continue;
    return translation.gguf().refuse(translation.key(key), "differs between layers of a kind");
  }
  if (last != sizes.front() && last != 2 * sizes.front()) {
    return translation.gguf().refuse(translation.key(key), "of layers that share keys is not twice that of the others");
  }
  config.set("intermediate_size", sizes.front()).set("use_double_wide_mlp", last != sizes.front());
  ASSIGN_OR_RETURN(const auto experts, translation.gguf().integer(translation.key("expert_count")));
  config.set("enable_moe_block", experts.value_or(0) != 0);
  if (experts.value_or(0) == 0) return {};
  TRY(translation.experts());
  config.set("top_k_experts", *config.find("num_experts_per_tok"));
  return {};
}

/// A second embedding with a vector of each layer.
Status layer_inputs(GgufTranslation& translation) {
  constexpr std::string_view key = "embedding_length_per_layer_input";
  ASSIGN_OR_RETURN(const auto dim, translation.gguf().integer(translation.key(key)));
  translation.config().set("hidden_size_per_layer_input", dim.value_or(0));
  if (dim.value_or(0) == 0) return {};
  const StoredTensor* table = translation.gguf().find_tensor("per_layer_token_embd.weight");
  if (table == nullptr || table->shape.size() != 2) {
    return translation.gguf().refuse(translation.key(key), "is there, but no matrix per_layer_token_embd.weight");
  }
  translation.config().set("vocab_size_per_layer_input", table->shape[0]);
  return {};
}

Status gemma4(GgufTranslation& translation) {
  TRY(translation.sizes());
  TRY(translation.vocabulary());
  TRY(translation.windows(6));
  const std::string of_shared = translation.key("attention.shared_kv_layers");
  ASSIGN_OR_RETURN(const auto shared, translation.gguf().integer(of_shared));
  if (shared.value_or(0) < 0 || shared.value_or(0) >= translation.layers()) {
    return translation.gguf().refuse(of_shared, fmt::format("is {} of {} layers", *shared, translation.layers()));
  }
  translation.config().set("num_kv_shared_layers", shared.value_or(0));
  TRY(ffns(translation, shared.value_or(0)));
  TRY(layer_inputs(translation));
  const Json* types = translation.config().find("layer_types");
  if (types == nullptr) return translation.gguf().refuse(translation.key("attention.sliding_window"), "is missing");
  const auto first = [&](const char* kind) {
    const auto& items = types->items();
    return static_cast<size_t>(std::find(items.begin(), items.end(), Json(kind)) - items.begin());
  };
  const size_t last = types->items().size() - 1;
  TRY(heads(translation, std::min(first("full_attention"), last), std::min(first("sliding_attention"), last)));
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
