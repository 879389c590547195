// Models with a recurrent state: gated delta nets of Qwen, short convolutions of LFM2.
#include "checkpoint/gguf_translation.h"

namespace quern {
namespace {

constexpr GgufName delta_names[] = {
    {"attn_qkv", "linear_attn.in_proj_qkv"},
    {"attn_gate", "linear_attn.in_proj_z"},
    {"ssm_ba", "linear_attn.in_proj_ba"},
    {"ssm_beta", "linear_attn.in_proj_b"},
    {"ssm_alpha", "linear_attn.in_proj_a"},
    {"ssm_conv1d", "linear_attn.conv1d"},
    {"ssm_a", "linear_attn.A"},
    {"ssm_dt", "linear_attn.dt"},
    {"ssm_norm", "linear_attn.norm"},
    {"ssm_out", "linear_attn.out_proj"},
    {"post_attention_norm", "post_attention_layernorm"},
};

constexpr GgufName conv_names[] = {
    {"token_embd_norm", "model.norm"},
    {"shortconv.conv", "conv.conv"},
    {"shortconv.in_proj", "conv.in_proj"},
    {"shortconv.out_proj", "conv.out_proj"},
};

/// "layer_types" where all but every few layers are recurrent, as the file lists them or counts them.
Status recurrent_layers(GgufTranslation& translation) {
  ASSIGN_OR_RETURN(const auto listed, translation.gguf().integers(translation.key("attention.recurrent_layers")));
  ASSIGN_OR_RETURN(const auto interval, translation.size("full_attention_interval", 1 << 10));
  if (listed && static_cast<int64_t>(listed->size()) < translation.layers()) {
    return translation.gguf().refuse(translation.key("attention.recurrent_layers"), "has fewer entries than layers");
  }
  Json::Array types;
  for (int64_t layer = 0; layer < translation.layers(); ++layer) {
    const bool recurrent =
        listed ? (*listed)[static_cast<size_t>(layer)] != 0 : (layer + 1) % interval.value_or(4) != 0;
    types.emplace_back(recurrent ? "linear_attention" : "full_attention");
  }
  translation.config().set("layer_types", std::move(types));
  return {};
}

Status delta_net(GgufTranslation& translation, bool tiled) {
  TRY(translation.shape());
  TRY(translation.heads());
  TRY(translation.vocabulary());
  TRY(translation.rope());
  TRY(recurrent_layers(translation));
  ASSIGN_OR_RETURN(const int64_t taps, translation.needed_size("ssm.conv_kernel", 1 << 10));
  ASSIGN_OR_RETURN(const int64_t key_dim, translation.needed_size("ssm.state_size", 1 << 16));
  ASSIGN_OR_RETURN(const int64_t key_heads, translation.needed_size("ssm.group_count", 1 << 16));
  ASSIGN_OR_RETURN(const int64_t value_heads, translation.needed_size("ssm.time_step_rank", 1 << 16));
  ASSIGN_OR_RETURN(const int64_t values, translation.needed_size("ssm.inner_size", 1 << 24));
  if (values % value_heads != 0) {
    return translation.gguf().refuse(translation.key("ssm.inner_size"), "is no multiple of ssm.time_step_rank");
  }
  Json& config = translation.config();
  config.set("linear_conv_kernel_dim", taps).set("linear_key_head_dim", key_dim);
  config.set("linear_num_key_heads", key_heads).set("linear_num_value_heads", value_heads);
  config.set("linear_value_head_dim", values / value_heads).set("linear_value_heads_tiled", tiled);
  return {};
}

Status shared_experts(GgufTranslation& translation) {
  TRY(translation.experts());
  return translation.copy_size("expert_shared_feed_forward_length", "shared_expert_intermediate_size", 1 << 20);
}

Status qwen3_next(GgufTranslation& translation) {
  TRY(delta_net(translation, false));
  return shared_experts(translation);
}
Status qwen35(GgufTranslation& translation) {
  TRY(delta_net(translation, true));
  return translation.dense_ffn();
}
Status qwen35_experts(GgufTranslation& translation) {
  TRY(delta_net(translation, true));
  return shared_experts(translation);
}

/// Layers without keys and values are those of convolution.
Status convolutions(GgufTranslation& translation) {
  TRY(translation.shape());
  TRY(translation.heads());
  TRY(translation.vocabulary());
  TRY(translation.rope());
  ASSIGN_OR_RETURN(const auto kv_heads, translation.gguf().integers(translation.key("attention.head_count_kv")));
  if (!kv_heads || static_cast<int64_t>(kv_heads->size()) != translation.layers()) {
    return translation.gguf().refuse(translation.key("attention.head_count_kv"), "must have an entry for each layer");
  }
  Json::Array types;
  for (const int64_t heads : *kv_heads) types.emplace_back(heads == 0 ? "conv" : "full_attention");
  ASSIGN_OR_RETURN(const int64_t taps, translation.needed_size("shortconv.l_cache", 1 << 10));
  Json& config = translation.config();
  config.set("layer_types", std::move(types)).set("conv_L_cache", taps).set("block_auto_adjust_ff_dim", false);
  return {};
}

Status lfm2(GgufTranslation& translation) {
  TRY(convolutions(translation));
  return translation.dense_ffn();
}
Status lfm2_experts(GgufTranslation& translation) {
  TRY(convolutions(translation));
  return translation.deepseek_routing();
}

const GgufEntry next{{.name = "qwen3next",
                      .model_type = "qwen3_next",
                      .class_name = "Qwen3NextForCausalLM",
                      .translate = qwen3_next,
                      .names = delta_names}};
const GgufEntry dense{{.name = "qwen35",
                       .model_type = "qwen3_5_text",
                       .class_name = "Qwen3_5ForCausalLM",
                       .translate = qwen35,
                       .names = delta_names}};
const GgufEntry experts{{.name = "qwen35moe",
                         .model_type = "qwen3_5_moe_text",
                         .class_name = "Qwen3_5MoeForCausalLM",
                         .translate = qwen35_experts,
                         .names = delta_names}};
const GgufEntry conv{{.name = "lfm2",
                      .model_type = "lfm2",
                      .class_name = "Lfm2ForCausalLM",
                      .translate = lfm2,
                      .names = conv_names,
                      .attention_in_some = true}};
const GgufEntry conv_experts{{.name = "lfm2moe",
                              .model_type = "lfm2_moe",
                              .class_name = "Lfm2MoeForCausalLM",
                              .translate = lfm2_experts,
                              .names = conv_names,
                              .attention_in_some = true}};

}  // namespace
}  // namespace quern
