// Gemma 3: norms before and after each block, most layers with a window and a rope of their own, scaled embedding.
#include <cmath>

#include "model/families/family.h"
#include "model/families/rope_rules.h"

namespace quern {
namespace {

void set_defaults(Config& config) {
  config.set_default("vocab_size", 262208);
  config.set_default("num_attention_heads", 8);
  config.set_default("num_key_value_heads", 4);
  config.set_default("head_dim", 256);
  config.set_default("max_position_embeddings", 131072);
  config.set_default("sliding_window", 4096);
  config.set_default("query_pre_attn_scalar", 256);
  config.set_default("rope_theta", 1e6);
  config.set_default("tie_word_embeddings", true);
  config.set_default("hidden_activation",
                     config.find("hidden_act") != nullptr ? *config.find("hidden_act") : Json("gelu_pytorch_tanh"));
}

/// The rope of layers with a window: its own entry in new files, a base alone in old ones.
RopeSpec local_rope(Config& config, const RopeFrame& frame) {
  const Json* both = config.find("rope_parameters");
  if (both != nullptr && both->present("sliding_attention") != nullptr) {
    return read_rope(config, frame, "sliding_attention");
  }
  return plain_rope(config, frame, config.number_or("rope_local_base_freq", 10000.0));
}

DecoderSpec gemma3(Config& config) {
  set_defaults(config);
  const int positions = config.size("max_position_embeddings", 1 << 27);
  DecoderSpec spec = llama_like(config);
  spec.max_positions = positions;  // the rope scaling is already counted in
  spec.norm_offset = 1.0F;
  spec.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(spec.dim)));
  spec.logit_softcap = static_cast<float>(config.number_or("final_logit_softcapping", 0.0));
  if (config.flag_or("use_bidirectional_attention", false)) {
    config.refuse("config: \"use_bidirectional_attention\" is not supported");
  }

  const double scalar = config.number_or("query_pre_attn_scalar", 256.0);
  if (!(scalar > 0)) config.refuse("config: \"query_pre_attn_scalar\" must be positive");
  const char* key =
      config.find("sliding_window_pattern") != nullptr ? "sliding_window_pattern" : "_sliding_window_pattern";
  const int pattern = config.size_or(key, 6, 1 << 10);
  set_windows(config, spec, config.count_or("sliding_window", 0, 1 << 27),
              [&](int layer) { return (layer + 1) % pattern != 0; });
  const Activation activation = config.activation("hidden_activation", "gelu_pytorch_tanh");
  each_attention(spec, [&](int, AttentionSpec& attention) {
    attention.qk_norm = true;
    attention.scale = static_cast<float>(1.0 / std::sqrt(scalar));
    attention.softcap = static_cast<float>(config.number_or("attn_logit_softcapping", 0.0));
    if (attention.window > 0) attention.rope = local_rope(config, {attention.head_dim, positions, 10000.0});
  });
  for (LayerSpec& layer : spec.layers) {
    layer.post_norms = true;
    std::get<FfnSpec>(layer.ffn).activation = activation;
  }
  return spec;
}

const Family text{"Gemma3ForCausalLM", gemma3};
const Family with_images{"Gemma3ForConditionalGeneration", gemma3};

}  // namespace
}  // namespace quern
