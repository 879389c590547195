// Gemma 1 to 3: scaled embedding, norms of 1 + w; from 2 on norms after each block too, and windows; in 3 norms on q
// and k, and a rope of their own for layers with a window.
#include <cmath>

#include "model/families/family.h"
#include "model/families/rope_rules.h"

namespace quern {
namespace {

DecoderSpec gemma(Config& config) {
  config.set_default("head_dim", 256);
  config.set_default("max_position_embeddings", 8192);
  config.set_default("tie_word_embeddings", true);
  config.set_default("hidden_activation",
                     config.find("hidden_act") != nullptr ? *config.find("hidden_act") : Json("gelu_pytorch_tanh"));
  DecoderSpec spec = llama_like(config);
  spec.norm.offset = 1.0F;
  spec.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(spec.dim)));
  const Activation activation = config.activation("hidden_activation", "gelu_pytorch_tanh");
  for (LayerSpec& layer : spec.layers) std::get<FfnSpec>(layer.ffn).activation = activation;
  return spec;
}

/// Each token sees those on both sides: a model for vectors. Windows reach half as far to each.
void look_both_ways(DecoderSpec& spec) {
  spec.pooler = PoolerSpec{Pooling::mean, {}};
  each_attention(spec, [](int, AttentionSpec& attention) {
    attention.causal = false;
    if (attention.window > 0) attention.window = attention.window / 2 + 1;
  });
}

/// What came with Gemma 2: norms around each block, capped logits, queries scaled by a number of the file.
DecoderSpec gemma_between_norms(Config& config) {
  DecoderSpec spec = gemma(config);
  const double scalar = config.number_or("query_pre_attn_scalar", 256.0);
  if (!(scalar > 0)) config.refuse("config: \"query_pre_attn_scalar\" must be positive");
  spec.logit_softcap = static_cast<float>(config.number_or("final_logit_softcapping", 0.0));
  for (LayerSpec& layer : spec.layers) layer.norms = norms_around_blocks();
  each_attention(spec, [&](int, AttentionSpec& attention) {
    attention.scale = static_cast<float>(1.0 / std::sqrt(scalar));
    attention.softcap = static_cast<float>(config.number_or("attn_logit_softcapping", 0.0));
  });
  return spec;
}

DecoderSpec gemma2(Config& config) {
  config.set_default("final_logit_softcapping", 30.0);
  config.set_default("attn_logit_softcapping", 50.0);
  DecoderSpec spec = gemma_between_norms(config);
  set_windows(config, spec, config.count_or("sliding_window", 4096, max_context),
              [](int layer) { return layer % 2 == 0; });
  return spec;
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
  config.set_default("vocab_size", 262208);
  config.set_default("num_attention_heads", 8);
  config.set_default("num_key_value_heads", 4);
  config.set_default("max_position_embeddings", 131072);
  config.set_default("rope_theta", 1e6);
  const int positions = config.size("max_position_embeddings", max_context);
  DecoderSpec spec = gemma_between_norms(config);
  spec.max_positions = positions;  // the rope scaling is already counted in
  const char* key =
      config.find("sliding_window_pattern") != nullptr ? "sliding_window_pattern" : "_sliding_window_pattern";
  const int pattern = config.size_or(key, 6, 1 << 10);
  set_windows(config, spec, config.count_or("sliding_window", 4096, max_context),
              [&](int layer) { return (layer + 1) % pattern != 0; });
  each_attention(spec, [&](int, AttentionSpec& attention) {
    attention.qk_norm = true;
    if (attention.window > 0) attention.rope = local_rope(config, {attention.head_dim, positions, 10000.0});
  });
  if (config.flag_or("use_bidirectional_attention", false)) look_both_ways(spec);
  return spec;
}

const Family first{"GemmaForCausalLM", gemma};
const Family second{"Gemma2ForCausalLM", gemma2};
const Family third{"Gemma3ForCausalLM", gemma3};
const Family third_for_vectors{"Gemma3TextModel", gemma3};
const Family third_with_images{"Gemma3ForConditionalGeneration", gemma3};

}  // namespace
}  // namespace quern
