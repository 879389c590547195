#include <algorithm>
#include <fmt/format.h>
#include <string_view>

#include "checkpoint/gguf_checkpoint.h"

namespace quern {
namespace {

struct Name {
  std::string_view gguf, hugging_face;
};

constexpr Name outer_names[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
};

constexpr Name layer_names[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
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
};

/// Gemma has norms after attention and ffn as well, so the norm before the ffn has another name.
constexpr Name gemma_names[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};

std::string_view lookup(std::span<const Name> names, std::string_view gguf) {
  const auto found = std::find_if(names.begin(), names.end(), [&](const Name& name) { return name.gguf == gguf; });
  return found == names.end() ? std::string_view() : found->hugging_face;
}

}  // namespace

std::string hugging_face_name(std::string_view gguf_name, std::string_view model_type) {
  const size_t last_dot = gguf_name.rfind('.');
  if (last_dot == std::string_view::npos) return std::string(gguf_name);
  const std::string_view suffix = gguf_name.substr(last_dot);  // ".weight" or ".bias"
  std::string_view stem = gguf_name.substr(0, last_dot);
  if (!stem.starts_with("blk.")) {
    const std::string_view outer = lookup(outer_names, stem);
    return outer.empty() ? std::string(gguf_name) : fmt::format("{}{}", outer, suffix);
  }
  stem.remove_prefix(4);
  const size_t dot = stem.find('.');
  if (dot == std::string_view::npos) return std::string(gguf_name);
  const std::string_view layer = stem.substr(0, dot);
  std::string_view name;
  if (model_type.starts_with("gemma")) name = lookup(gemma_names, stem.substr(dot + 1));
  if (name.empty()) name = lookup(layer_names, stem.substr(dot + 1));
  return name.empty() ? std::string(gguf_name) : fmt::format("model.layers.{}.{}{}", layer, name, suffix);
}

}  // namespace quern
