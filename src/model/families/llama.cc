// Llama, Mistral and what differs from them in a number.
#include <fmt/format.h>

#include "model/families/family.h"
#include "model/families/rope_rules.h"

namespace quern {
namespace {

/// A window on every layer, unless the file says which.
DecoderSpec mistral(Config& config) {
  DecoderSpec spec = llama_like(config);
  set_windows(config, spec, config.count_or("sliding_window", 0, max_context), [](int) { return true; });
  return spec;
}

/// Mistral whose queries grow with their position: q *= 1 + beta * ln(1 + floor(position / period)).
DecoderSpec ministral3(Config& config) {
  DecoderSpec spec = mistral(config);
  const Json& rope = rope_keys(config, "full_attention");
  const double beta = rope.number("llama_4_scaling_beta").value_or(0.0);
  if (beta == 0.0) return spec;
  const double period = rope.number("original_max_position_embeddings").value_or(0.0);
  if (!(period >= 1 && period <= max_context && beta > 0 && beta < 100)) {
    config.refuse("config: \"llama_4_scaling_beta\" needs \"original_max_position_embeddings\" of at least 1");
    return spec;
  }
  each_attention(spec, [&](int, AttentionSpec& attention) {
    attention.query_growth = {static_cast<float>(beta), static_cast<float>(period)};
  });
  return spec;
}

/// Which layers rotate: "no_rope_layers" holds 1 for those that do, or every so many layers one does not.
std::vector<bool> rotating_layers(Config& config, size_t layers) {
  const int interval = config.size_or("no_rope_layer_interval", 4, 1 << 10);
  std::vector<bool> rotating(layers);
  for (size_t i = 0; i < layers; ++i) rotating[i] = (i + 1) % static_cast<size_t>(interval) != 0;
  const Json* listed = config.find("no_rope_layers");
  if (listed == nullptr || (listed->is_array() && listed->items().empty())) return rotating;
  if (!listed->is_array() || listed->items().size() != layers) {
    config.refuse(fmt::format("config: \"no_rope_layers\" must be a list of {} numbers", layers));
    return rotating;
  }
  for (size_t i = 0; i < layers; ++i) rotating[i] = !(listed->items()[i] == Json(0));
  return rotating;
}

DecoderSpec smollm3(Config& config) {
  config.set_default("rope_theta", 2e6);
  config.set_default("tie_word_embeddings", true);
  config.set_default("num_key_value_heads", 4);
  DecoderSpec spec = llama_like(config);
  const std::vector<bool> rotating = rotating_layers(config, spec.layers.size());
  const bool windows = config.flag_or("use_sliding_window", false);
  set_windows(config, spec, windows ? config.count_or("sliding_window", 0, max_context) : 0,
              [&](int layer) { return !rotating[static_cast<size_t>(layer)]; });
  each_attention(spec, [&](int layer, AttentionSpec& attention) {
    if (!rotating[static_cast<size_t>(layer)]) attention.rope = {};
  });
  return spec;
}

const Family llama{"LlamaForCausalLM", llama_like};
const Family windowed{"MistralForCausalLM", mistral};
const Family mixed{"MinistralForCausalLM", mistral};
const Family growing{"Ministral3ForCausalLM", ministral3};
const Family growing_with_images{"Mistral3ForConditionalGeneration", ministral3};
const Family smol{"SmolLM3ForCausalLM", smollm3};

}  // namespace
}  // namespace quern
