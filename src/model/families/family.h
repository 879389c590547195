// Family: how the configuration of one architecture becomes a DecoderSpec. Constructing one registers it.
#pragma once

#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "model/families/config.h"
#include "model/spec.h"

namespace quern {

/// Reads a configuration; what is wrong with it is left in the Config.
using MakeSpec = DecoderSpec (*)(Config& config);

struct Family {
  Family(std::string_view architecture, MakeSpec make);
};

/// The spec of the family that config.json names in "architectures"; unknown ones are refused with the list of known
/// ones.
Result<DecoderSpec> make_spec(const Json& config);
std::vector<std::string_view> known_architectures();
/// What reads the configuration of an architecture; null when it is not known. Some architectures share one.
MakeSpec find_family(std::string_view architecture);

// Bounds of what a file may ask for: far above any model, far below an overflow of any product that is formed of them.
inline constexpr int max_vocab = 1 << 23;
inline constexpr int max_dim = 1 << 17;
inline constexpr int max_hidden = 1 << 20;
inline constexpr int max_layers = 1 << 10;
inline constexpr int max_heads = 1 << 10;
inline constexpr int max_context = 1 << 27;

/// What families start from: pre-norm, grouped-query attention with rope over the whole head, gated silu.
DecoderSpec llama_like(Config& config);

/// Scores that a classifier gives of a text.
int read_labels(Config& config);
/// Norms that take the mean off, with biases or without. Their epsilon is under `eps_key`, or under "layer_norm_eps".
void set_layer_norm(Config& config, DecoderSpec& spec, std::string_view eps_key, bool bias);
/// Norms before and after each block, by the names of Gemma 2.
LayerNorms norms_around_blocks();
/// Norms after each block and none before, by the names of OLMo 2.
LayerNorms norms_after_blocks();

/// Gives layers a window, as "layer_types" says or, without that key, where `slides(layer)`.
template <typename Slides>
void set_windows(Config& config, DecoderSpec& spec, int window, Slides slides);

/// Calls visit(layer, AttentionSpec&) for every layer that has one.
template <typename Visit>
void each_attention(DecoderSpec& spec, Visit visit) {
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (auto* attention = std::get_if<AttentionSpec>(&spec.layers[i].mixer)) visit(static_cast<int>(i), *attention);
  }
}

/// Which layers "layer_types" calls `kind`, where all others are "full_attention"; empty without that key.
std::vector<bool> layers_called(Config& config, size_t layers, std::string_view kind);
inline std::vector<bool> sliding_layers(Config& config, size_t layers) {
  return layers_called(config, layers, "sliding_attention");
}

/// Layers that "layer_types" calls `kind`, or without that key those for which `recurs(layer)` is true, get `mixer`. At
/// least one keeps its attention.
template <typename Recurs>
void set_recurrent_layers(Config& config, DecoderSpec& spec, std::string_view kind, const Mixer& mixer, Recurs recurs) {
  const std::vector<bool> listed = layers_called(config, spec.layers.size(), kind);
  bool attends = false;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const bool recurrent = listed.empty() ? recurs(static_cast<int>(i)) : listed[i];
    if (recurrent) spec.layers[i].mixer = mixer;
    attends = attends || !recurrent;
  }
  if (!attends) config.refuse("config: a model without a layer of attention is not supported");
}

template <typename Slides>
void set_windows(Config& config, DecoderSpec& spec, int window, Slides slides) {
  const std::vector<bool> listed = sliding_layers(config, spec.layers.size());
  each_attention(spec, [&](int layer, AttentionSpec& attention) {
    const bool sliding = listed.empty() ? slides(layer) : listed[static_cast<size_t>(layer)];
    attention.window = sliding ? window : 0;
  });
}

}  // namespace quern
