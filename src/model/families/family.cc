#include "model/families/family.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

#include "model/families/rope_rules.h"
#include "ops/attention.h"

namespace quern {
namespace {

std::map<std::string_view, MakeSpec>& families() {
  static std::map<std::string_view, MakeSpec> table;
  return table;
}

Result<std::string> architecture_of(const Json& config) {
  const Json* names = config.present("architectures");
  if (names == nullptr) return Error{"config: \"architectures\" is missing"};
  if (!names->is_array() || names->items().empty() || !names->items()[0].is_string()) {
    return Error{"config: \"architectures\" must be a list of names"};
  }
  return names->items()[0].as_string();
}

AttentionSpec read_attention(Config& config, int dim, int max_positions) {
  AttentionSpec spec;
  spec.heads = config.size("num_attention_heads", max_heads);
  spec.kv_heads = config.size_or("num_key_value_heads", spec.heads, max_heads);
  if (spec.heads % spec.kv_heads != 0) {
    config.refuse(fmt::format("config: \"num_attention_heads\" is {}, no multiple of \"num_key_value_heads\", {}",
                              spec.heads, spec.kv_heads));
  }
  if (config.find("head_dim") == nullptr && dim % spec.heads != 0) {
    config.refuse(
        fmt::format("config: \"hidden_size\" is {}, no multiple of \"num_attention_heads\", {}", dim, spec.heads));
  }
  spec.head_dim = config.size_or("head_dim", std::max(1, dim / spec.heads), max_head_dim);
  if (spec.head_dim % 2 != 0) config.refuse(fmt::format("config: \"head_dim\" is {}, but must be even", spec.head_dim));
  spec.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec.head_dim)));
  spec.qkv_bias = config.flag_or("attention_bias", false);
  spec.output_bias = spec.qkv_bias;
  spec.rope = read_rope(config, {spec.head_dim, max_positions, 10000.0}, "full_attention");
  return spec;
}

float read_epsilon(Config& config, std::string_view key, double fallback) {
  const double eps = config.number_or(key, fallback);
  if (eps > 0 && eps < 1) return static_cast<float>(eps);
  config.refuse(fmt::format("config: \"{}\" must be between 0 and 1", key));
  return 1e-6F;
}

}  // namespace

Family::Family(std::string_view architecture, MakeSpec make) { CHECK(families().emplace(architecture, make).second); }

std::vector<std::string_view> known_architectures() {
  std::vector<std::string_view> names;
  for (const auto& [name, make] : families()) names.push_back(name);
  return names;
}

MakeSpec find_family(std::string_view architecture) {
  const auto family = families().find(architecture);
  return family == families().end() ? nullptr : family->second;
}

Result<DecoderSpec> make_spec(const Json& json) {
  ASSIGN_OR_RETURN(const std::string architecture, architecture_of(json));
  const MakeSpec make = find_family(architecture);
  if (make == nullptr) {
    return Error{fmt::format("the architecture \"{}\" is not supported; known are {}", architecture,
                             fmt::join(known_architectures(), ", "))};
  }
  Config config(json);
  DecoderSpec spec = make(config);
  spec.architecture = architecture;
  if (!config.ok()) return *config.error();
  return spec;
}

DecoderSpec llama_like(Config& config) {
  DecoderSpec spec;
  spec.vocab = config.size("vocab_size", max_vocab);
  spec.dim = config.size("hidden_size", max_dim);
  spec.max_positions = config.size_or("max_position_embeddings", 2048, max_context);
  spec.norm.eps = read_epsilon(config, "rms_norm_eps", 1e-6);
  spec.tied = config.flag_or("tie_word_embeddings", false);

  LayerSpec layer;
  layer.mixer = read_attention(config, spec.dim, spec.max_positions);
  layer.ffn = FfnSpec{config.size("intermediate_size", max_hidden), config.activation("hidden_act", "silu"),
                      config.flag_or("mlp_bias", false)};
  spec.layers.assign(static_cast<size_t>(config.size("num_hidden_layers", max_layers)), layer);
  spec.max_positions = extended_positions(config, spec.max_positions, max_context);
  return spec;
}

int read_labels(Config& config) {
  constexpr int most = 1 << 16;
  const Json* names = config.find("id2label");
  if (names == nullptr) return config.size_or("num_labels", 2, most);
  if (names->is_object() && !names->members().empty() && names->members().size() <= most) {
    return static_cast<int>(names->members().size());
  }
  config.refuse("config: \"id2label\" must be an object that names the classes");
  return 1;
}

void set_layer_norm(Config& config, DecoderSpec& spec, std::string_view eps_key, bool bias) {
  const bool own = config.find(eps_key) != nullptr;
  spec.norm = {NormKind::layer, bias, read_epsilon(config, own ? eps_key : "layer_norm_eps", 1e-5), 0.0F};
}

LayerNorms norms_around_blocks() {
  return {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"};
}

LayerNorms norms_after_blocks() { return {"", "post_attention_layernorm", "", "post_feedforward_layernorm"}; }

std::vector<bool> layers_called(Config& config, size_t layers, std::string_view kind) {
  const Json* types = config.find("layer_types");
  if (types == nullptr) return {};
  if (!types->is_array() || types->items().size() != layers) {
    config.refuse(fmt::format("config: \"layer_types\" must be a list of {} names", layers));
    return std::vector<bool>(layers);
  }
  std::vector<bool> called;
  for (const Json& type : types->items()) {
    const bool known = type == Json(kind) || type == Json("full_attention");
    if (!known) config.refuse(fmt::format("config: \"layer_types\" has {}, which is not supported", type.dump()));
    called.push_back(type == Json(kind));
  }
  return called;
}

}  // namespace quern
