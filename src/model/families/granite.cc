// Granite: Llama with a multiplier at every place that can have one.
#include "model/families/family.h"

namespace quern {
namespace {

/// A multiplier of the file, bounded so that no product leaves the range of floats.
float multiplier(Config& config, const char* key) {
  const double value = config.number_or(key, 1.0);
  if (value > 1e-6 && value < 1e6) return static_cast<float>(value);
  config.refuse(std::string("config: \"") + key + "\" must be a positive number below a million");
  return 1.0F;
}

DecoderSpec granite(Config& config) {
  DecoderSpec spec = llama_like(config);
  spec.embedding_scale = multiplier(config, "embedding_multiplier");
  spec.logit_scale = 1.0F / multiplier(config, "logits_scaling");
  const float residual = multiplier(config, "residual_multiplier");
  for (LayerSpec& layer : spec.layers) layer.residual_factor = residual;
  const float scale = multiplier(config, "attention_multiplier");
  const Json* positions = config.find("position_embedding_type");
  const bool rotates = positions == nullptr || *positions == Json("rope");
  each_attention(spec, [&](int, AttentionSpec& attention) {
    attention.scale = scale;
    if (!rotates) attention.rope = {};
  });
  return spec;
}

/// Granite 4 without state spaces and experts; its ffn goes by the name of the shared expert.
DecoderSpec granite4(Config& config) {
  if (config.count_or("num_local_experts", 0, 1 << 12) > 0) {
    config.refuse("config: \"num_local_experts\" of a GraniteMoeHybrid must be 0; its experts are not supported");
  }
  const Json* types = config.find("layer_types");
  if (types != nullptr && types->is_array()) {
    for (const Json& type : types->items()) {
      if (!(type == Json("attention") || type == Json("full_attention"))) {
        config.refuse(
            "config: \"layer_types\" of a GraniteMoeHybrid must be attention; state spaces are not supported");
      }
    }
  }
  if (config.find("shared_intermediate_size") != nullptr) {
    config.set_default("intermediate_size", *config.find("shared_intermediate_size"));
  }
  config.set_default("position_embedding_type", "nope");
  DecoderSpec spec = granite(config);
  for (LayerSpec& layer : spec.layers) {
    std::get<FfnSpec>(layer.ffn).hidden = config.size("shared_intermediate_size", max_hidden);
  }
  spec.names = {{"shared_mlp.input_linear.", "mlp.gate_up_proj."}, {"shared_mlp.output_linear.", "mlp.down_proj."}};
  return spec;
}

const Family third{"GraniteForCausalLM", granite};
const Family fourth{"GraniteMoeHybridForCausalLM", granite4};

}  // namespace
}  // namespace quern
