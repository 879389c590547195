#include "model/families/experts.h"

#include <algorithm>
#include <fmt/format.h>
#include <vector>

namespace quern {
namespace {

constexpr int max_experts = 1 << 12;
constexpr int max_groups = 32;  // RouterRule

const char* count_key(const Config& config) {
  for (const char* key : {"num_experts", "n_routed_experts"}) {
    if (config.find(key) != nullptr) return key;
  }
  return "num_local_experts";
}

/// Layers that "mlp_only_layers" lists keep a plain ffn.
std::vector<bool> dense_layers(Config& config, size_t layers) {
  std::vector<bool> dense(layers);
  const Json* listed = config.find("mlp_only_layers");
  if (listed == nullptr) return dense;
  if (!listed->is_array()) {
    config.refuse("config: \"mlp_only_layers\" must be a list of layers");
    return dense;
  }
  for (const Json& layer : listed->items()) {
    if (!layer.is_integer() || layer.as_integer() < 0 || layer.as_integer() >= static_cast<int64_t>(layers)) {
      config.refuse(fmt::format("config: \"mlp_only_layers\" has {}, which is no layer", layer.dump()));
      return dense;
    }
    dense[static_cast<size_t>(layer.as_integer())] = true;
  }
  return dense;
}

}  // namespace

MoeSpec read_experts(Config& config, const char* hidden_key, const char* used_key) {
  MoeSpec moe;
  moe.experts = config.size(count_key(config), max_experts);
  moe.router.used = config.size(used_key, max_experts);
  if (moe.router.used > moe.experts) {
    config.refuse(
        fmt::format("config: \"{}\" is {}, more than the {} experts", used_key, moe.router.used, moe.experts));
  }
  moe.hidden = config.size(hidden_key, 1 << 20);
  moe.router.renormalize = config.flag_or("norm_topk_prob", false);
  moe.activation = config.activation("hidden_act", "silu");
  return moe;
}

void read_deepseek_routing(Config& config, MoeSpec& moe) {
  RouterRule& rule = moe.router;
  rule.groups = config.size_or("n_group", 1, max_groups);
  rule.used_groups = config.size_or("topk_group", rule.groups, max_groups);
  rule.scale = static_cast<float>(config.number_or("routed_scaling_factor", 1.0));
  if (moe.experts % rule.groups != 0 || rule.used_groups > rule.groups ||
      rule.used > moe.experts / rule.groups * rule.used_groups) {
    config.refuse(fmt::format("config: {} experts a token cannot come from {} of {} groups of {} experts", rule.used,
                              rule.used_groups, rule.groups, moe.experts));
  }
  if (rule.group_score == RouterRule::GroupScore::best_two && moe.experts < 2 * rule.groups) {
    config.refuse(fmt::format("config: {} experts in {} groups, but a group must have two", moe.experts, rule.groups));
  }
  const int shared = config.count_or("n_shared_experts", 0, 1 << 10);
  if (config.ok()) moe.shared_hidden = shared * moe.hidden;
}

void set_experts_after_dense(Config& config, DecoderSpec& spec, const MoeSpec& moe) {
  const int dense = config.count_or("first_k_dense_replace", 0, 1 << 20);
  const int step = config.size_or("moe_layer_freq", 1, 1 << 12);
  for (int i = dense; i < static_cast<int>(spec.layers.size()); ++i) {
    if (i % step == 0) spec.layers[static_cast<size_t>(i)].ffn = moe;
  }
}

void set_experts_in_steps(Config& config, DecoderSpec& spec, const MoeSpec& moe) {
  const int step = config.size_or("decoder_sparse_step", 1, 1 << 12);
  const std::vector<bool> dense = dense_layers(config, spec.layers.size());
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (!dense[i] && (i + 1) % static_cast<size_t>(step) == 0) spec.layers[i].ffn = moe;
  }
}

}  // namespace quern
