// DeepSeek V2, V3 and R1, and Kimi K2, which is one of them: latent attention, and experts chosen in groups.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <string>

#include "model/families/experts.h"
#include "model/families/family.h"
#include "model/families/rope_rules.h"
#include "ops/attention.h"

namespace quern {
namespace {

constexpr int max_rank = 1 << 15;

/// Yarn makes scores larger by the square of what it would do to sines and cosines.
double score_factor(Config& config) {
  const Json* keys = config.find("rope_parameters");
  if (keys == nullptr) keys = config.find("rope_scaling");
  if (keys == nullptr || !keys->is_object()) return 1.0;
  const double all_dims = keys->number("mscale_all_dim").value_or(0.0);
  const double factor = keys->number("factor").value_or(1.0);
  if (all_dims == 0 || factor <= 1) return 1.0;
  const double magnitude = 0.1 * all_dims * std::log(factor) + 1.0;
  return magnitude * magnitude;
}

MlaSpec read_mla(Config& config, int max_positions) {
  MlaSpec mla;
  mla.heads = config.size("num_attention_heads", 1 << 10);
  mla.q_rank = config.find("q_lora_rank") != nullptr ? config.size("q_lora_rank", max_rank) : 0;
  mla.kv_rank = config.size("kv_lora_rank", max_rank);
  mla.plain_dim = config.size("qk_nope_head_dim", max_rank);
  mla.value_dim = config.size("v_head_dim", max_rank);
  mla.bias = config.flag_or("attention_bias", false);
  const int rotated = config.size("qk_rope_head_dim", max_rank);
  mla.rope = read_rope(config, {rotated, max_positions, 10000.0}, "full_attention");
  mla.rope.interleaved = config.flag_or("rope_interleave", true);
  if (mla.kv_rank + rotated > max_head_dim) {
    config.refuse(fmt::format("config: \"kv_lora_rank\" and \"qk_rope_head_dim\" make {} values, more than {}",
                              mla.kv_rank + rotated, max_head_dim));
  }
  mla.scale = static_cast<float>(score_factor(config) / std::sqrt(static_cast<double>(mla.plain_dim + rotated)));
  return mla;
}

/// What is not about experts.
DecoderSpec deepseek(Config& config) {
  // Nothing is made of the size of a head but its parts.
  if (const Json* rotated = config.find("qk_rope_head_dim")) config.set_default("head_dim", *rotated);
  DecoderSpec spec = llama_like(config);
  const MlaSpec mla = read_mla(config, config.size_or("max_position_embeddings", 2048, 1 << 27));
  for (LayerSpec& layer : spec.layers) layer.mixer = mla;
  return spec;
}

void expect(Config& config, const char* key, std::string_view fallback, std::initializer_list<std::string_view> known) {
  const Json* value = config.find(key);
  const std::string_view name = value == nullptr ? fallback : value->is_string() ? value->as_string() : value->kind();
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  config.refuse(fmt::format("config: \"{}\" is \"{}\", which is not supported", key, name));
}

DecoderSpec deepseek_v2(Config& config) {
  DecoderSpec spec = deepseek(config);
  expect(config, "scoring_func", "softmax", {"softmax"});
  expect(config, "topk_method", "greedy", {"greedy", "group_limited_greedy"});
  MoeSpec moe = read_experts(config, "moe_intermediate_size");
  const Json* method = config.find("topk_method");
  const bool grouped = method != nullptr && *method == Json("group_limited_greedy");
  read_deepseek_routing(config, moe);
  if (!grouped) moe.router.used_groups = moe.router.groups = 1;
  // The factor is for weights that are not renormalized.
  if (moe.router.renormalize) moe.router.scale = 1.0F;
  set_experts_after_dense(config, spec, moe);
  return spec;
}

DecoderSpec deepseek_v3(Config& config) {
  config.set_default("norm_topk_prob", true);
  config.set_default("routed_scaling_factor", 2.5);
  DecoderSpec spec = deepseek(config);
  expect(config, "scoring_func", "sigmoid", {"sigmoid"});
  expect(config, "topk_method", "noaux_tc", {"noaux_tc"});
  MoeSpec moe = read_experts(config, "moe_intermediate_size");
  moe.choice_bias = true;
  moe.router.score = RouterRule::Score::sigmoid;
  moe.router.group_score = RouterRule::GroupScore::best_two;
  read_deepseek_routing(config, moe);
  set_experts_after_dense(config, spec, moe);
  return spec;
}

const Family second{"DeepseekV2ForCausalLM", deepseek_v2};
const Family third{"DeepseekV3ForCausalLM", deepseek_v3};

}  // namespace
}  // namespace quern
