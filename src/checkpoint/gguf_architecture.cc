#include "checkpoint/gguf_architecture.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "base/check.h"

namespace quern {
namespace {

constexpr GgufName outer_names[] = {
    {"token_embd", "model.embed_tokens"},
    {"position_embd", "model.embed_positions"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
};

constexpr GgufName layer_names[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_qkv", "self_attn.qkv_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "mlp.experts.gate_proj"},
    {"ffn_up_exps", "mlp.experts.up_proj"},
    {"ffn_down_exps", "mlp.experts.down_proj"},
    {"exp_probs_b", "mlp.gate.e_score_correction"},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
};

std::string_view lookup(std::span<const GgufName> names, std::string_view gguf) {
  const auto found = std::find_if(names.begin(), names.end(), [&](const GgufName& name) { return name.gguf == gguf; });
  return found == names.end() ? std::string_view() : found->hugging_face;
}

std::string_view lookup(const GgufArchitecture& architecture, std::span<const GgufName> common, std::string_view gguf) {
  const std::string_view own = lookup(architecture.names, gguf);
  return own.empty() ? lookup(common, gguf) : own;
}

std::map<std::string_view, GgufArchitecture>& registry() {
  static std::map<std::string_view, GgufArchitecture> table;
  return table;
}

}  // namespace

GgufEntry::GgufEntry(const GgufArchitecture& architecture) {
  CHECK(registry().emplace(architecture.name, architecture).second);
}

const GgufArchitecture* find_gguf_architecture(std::string_view name) {
  const auto found = registry().find(name);
  return found == registry().end() ? nullptr : &found->second;
}

std::vector<std::string_view> gguf_architectures() {
  std::vector<std::string_view> names;
  for (const auto& [name, architecture] : registry()) names.push_back(name);
  return names;
}

std::string hugging_face_name(std::string_view gguf_name, const GgufArchitecture& architecture) {
  const size_t last_dot = gguf_name.rfind('.');
  if (last_dot == std::string_view::npos) return std::string(gguf_name);
  std::string_view suffix = gguf_name.substr(last_dot);
  if (suffix != ".weight" && suffix != ".bias") suffix = {};
  std::string_view stem = gguf_name.substr(0, gguf_name.size() - suffix.size());
  if (!stem.starts_with("blk.")) {
    const std::string_view outer = lookup(architecture, outer_names, stem);
    return outer.empty() ? std::string(gguf_name) : fmt::format("{}{}", outer, suffix);
  }
  stem.remove_prefix(4);
  const size_t dot = stem.find('.');
  if (dot == std::string_view::npos) return std::string(gguf_name);
  const std::string_view layer = stem.substr(0, dot);
  const std::string_view name = lookup(architecture, layer_names, stem.substr(dot + 1));
  return name.empty() ? std::string(gguf_name) : fmt::format("model.layers.{}.{}{}", layer, name, suffix);
}

}  // namespace quern
