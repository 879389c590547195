// Experts, and attention over latents, in the metadata of GGUF files.
#include <fmt/format.h>

#include "checkpoint/gguf_translation.h"

namespace quern {
namespace {

constexpr int64_t most_experts = 1 << 12;
constexpr int64_t most_hidden = 1 << 20;

}  // namespace

Status GgufTranslation::experts() {
  ASSIGN_OR_RETURN(const int64_t count, needed_size("expert_count", most_experts));
  ASSIGN_OR_RETURN(const int64_t used, needed_size("expert_used_count", count));
  config_.set("num_experts", count).set("num_experts_per_tok", used);
  TRY(copy_size("expert_feed_forward_length", "moe_intermediate_size", most_hidden));
  ASSIGN_OR_RETURN(const auto renormalize, gguf_.boolean(key("expert_weights_norm")));
  if (renormalize) config_.set("norm_topk_prob", *renormalize);
  return {};
}

Status GgufTranslation::deepseek_routing() {
  TRY(experts());
  TRY(copy_size("expert_shared_count", "n_shared_experts", most_experts));
  ASSIGN_OR_RETURN(const auto dense, gguf_.integer(key("leading_dense_block_count")));
  if (dense) config_.set("first_k_dense_replace", *dense);
  TRY(copy_number("expert_weights_scale", "routed_scaling_factor"));
  config_.set("n_group", 1).set("topk_group", 1);
  TRY(copy_size("expert_group_count", "n_group", most_experts));
  return copy_size("expert_group_used_count", "topk_group", most_experts);
}

Status GgufTranslation::latent_heads() {
  constexpr int64_t most = 1 << 16;
  ASSIGN_OR_RETURN(heads_, needed_size("attention.head_count", most));
  ASSIGN_OR_RETURN(head_dim_, needed_size("rope.dimension_count", most));
  ASSIGN_OR_RETURN(const int64_t rank, needed_size("attention.kv_lora_rank", most));
  TRY(copy_size("attention.q_lora_rank", "q_lora_rank", most));
  // Files from before attention was kept as one head of latents have the size of a head under the older key.
  const bool one_head = gguf_.has(key("attention.key_length_mla"));
  const char* const of_keys = one_head ? "attention.key_length_mla" : "attention.key_length";
  const char* const of_values = one_head ? "attention.value_length_mla" : "attention.value_length";
  ASSIGN_OR_RETURN(const int64_t key_length, needed_size(of_keys, most));
  ASSIGN_OR_RETURN(const int64_t value_length, needed_size(of_values, most));
  if (key_length <= head_dim_) {
    return gguf_.refuse(key(of_keys),
                        fmt::format("is {}, no more than the {} that are rotated", key_length, head_dim_));
  }
  config_.set("num_attention_heads", heads_).set("num_key_value_heads", heads_).set("head_dim", head_dim_);
  config_.set("kv_lora_rank", rank).set("qk_rope_head_dim", head_dim_);
  config_.set("qk_nope_head_dim", key_length - head_dim_).set("v_head_dim", value_length);
  TRY(rope());
  // Sines and cosines are not scaled; scores are by the square of this logarithm's part.
  ASSIGN_OR_RETURN(const auto logarithm, positive("rope.scaling.yarn_log_multiplier"));
  change_rope_scaling({{"attention_factor", 1.0}, {"mscale_all_dim", logarithm.value_or(0.0) * 10.0}});
  return {};
}

}  // namespace quern
