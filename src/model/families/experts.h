// Routed experts as configurations describe them.
#pragma once

#include "model/families/config.h"
#include "model/spec.h"

namespace quern {

/// Number of experts, how many a token uses under `used_key`, and their size under `hidden_key`. Scores are a softmax
/// over all; weights are renormalized as "norm_topk_prob" says.
MoeSpec read_experts(Config& config, const char* hidden_key, const char* used_key = "num_experts_per_tok");

/// The rest of what DeepSeek's configurations say, and those of families after it: groups, the factor on weights and
/// shared experts.
void read_deepseek_routing(Config& config, MoeSpec& moe);

/// Layers from "first_k_dense_replace" on, every "moe_layer_freq"th, get `moe`.
void set_experts_after_dense(Config& config, DecoderSpec& spec, const MoeSpec& moe);

/// A layer's kind of ffn as Qwen's configurations say it: all but "mlp_only_layers", every "decoder_sparse_step"th.
void set_experts_in_steps(Config& config, DecoderSpec& spec, const MoeSpec& moe);

}  // namespace quern
