#include "model/spec.h"

#include <algorithm>
#include <fmt/format.h>
#include <tuple>

#include "base/check.h"
#include "ops/delta_net.h"
#include "ops/short_conv.h"

namespace quern {
namespace {

const char* name(Activation activation) {
  switch (activation) {
    case Activation::silu: return "silu";
    case Activation::gelu_tanh: return "gelu_tanh";
    case Activation::gelu_erf: return "gelu_erf";
    case Activation::clamped_swiglu: return "clamped_swiglu";
    case Activation::relu: return "relu";
  }
  return "?";
}

std::string text(const RopeSpec& rope) {
  if (rope.dims == 0) return "no rope";
  std::string out = fmt::format("rope {}{} {:.6g}..{:.6g}", rope.dims, rope.interleaved ? " interleaved" : "",
                                rope.inverse_frequencies.front(), rope.inverse_frequencies.back());
  if (rope.factor != 1.0F) out += fmt::format(" x {:.6g}", rope.factor);
  return out;
}

std::string text(const AttentionSpec& spec) {
  std::string out =
      fmt::format("attention {}/{} heads of {}, scale {:.6g}", spec.heads, spec.kv_heads, spec.head_dim, spec.scale);
  if (spec.window > 0) out += fmt::format(", window {}", spec.window);
  if (spec.softcap > 0) out += fmt::format(", softcap {:g}", spec.softcap);
  if (spec.qkv_bias) out += ", qkv bias";
  if (spec.output_bias) out += ", output bias";
  if (spec.qk_norm) out += ", qk norm";
  if (!spec.causal) out += ", both ways";
  if (spec.sinks) out += ", sinks";
  if (spec.output_gate) out += ", output gate";
  if (spec.whole_qk_norm) out += ", whole qk norm";
  if (spec.qk_layer_norm) out += ", qk layer norm";
  if (spec.value_norm) out += ", v norm";
  if (spec.values_are_keys) out += ", v = k";
  if (spec.query_growth.beta != 0.0F) {
    out += fmt::format(", q x 1 + {:g} ln(1 + position / {:g})", spec.query_growth.beta, spec.query_growth.period);
  }
  return out + ", " + text(spec.rope);
}

std::string text(const SharedAttentionSpec& spec) {
  std::string out = fmt::format("attention {}/{} heads of {} to the keys of layer {}, scale {:.6g}", spec.heads,
                                spec.kv_heads, spec.head_dim, spec.layer, spec.scale);
  if (spec.window > 0) out += fmt::format(", window {}", spec.window);
  if (spec.bias) out += ", bias";
  return out + ", " + text(spec.rope);
}

std::string text(const FfnSpec& spec) {
  return fmt::format("ffn {} {}{}", spec.hidden, name(spec.activation), spec.bias ? ", bias" : "");
}

std::string text(const MlaSpec& spec) {
  std::string out = fmt::format("latent attention {} heads of {} + {}, values of {}, rank {}, scale {:.6g}", spec.heads,
                                spec.plain_dim, spec.rope.dims, spec.value_dim, spec.kv_rank, spec.scale);
  if (spec.q_rank > 0) out += fmt::format(", query rank {}", spec.q_rank);
  if (spec.bias) out += ", bias";
  return out + ", " + text(spec.rope);
}

std::string text(const DeltaNetSpec& spec) {
  return fmt::format("gated delta net {}/{} heads of {}/{}{}, convolution of {}", spec.value_heads, spec.key_heads,
                     spec.value_dim, spec.key_dim, spec.tiled ? " tiled" : "", spec.taps);
}

std::string text(const ShortConvSpec& spec) {
  return fmt::format("gated convolution of {}{}", spec.taps, spec.bias ? ", bias" : "");
}

std::string text(const RouterRule& rule) {
  std::string out;
  if (rule.score == RouterRule::Score::sigmoid) out += ", sigmoid";
  if (rule.used_groups < rule.groups) {
    out += fmt::format(", {} of {} groups by their {}", rule.used_groups, rule.groups,
                       rule.group_score == RouterRule::GroupScore::best ? "best" : "best two");
  }
  if (rule.renormalize) out += ", renormalized";
  if (rule.scale != 1.0F) out += fmt::format(", x {:g}", rule.scale);
  return out;
}

std::string text(const PlainFfnSpec& spec) {
  return fmt::format("plain ffn {} {}{}", spec.hidden, name(spec.activation), spec.bias ? ", bias" : "");
}

std::string text(const MoeSpec& spec) {
  std::string out = fmt::format("moe {} of {} experts of {} {}{}", spec.router.used, spec.experts, spec.hidden,
                                name(spec.activation), text(spec.router));
  if (spec.router_bias) out += ", router bias";
  if (spec.choice_bias) out += ", choice bias";
  if (spec.bias) out += ", bias";
  if (spec.shared_hidden > 0) out += fmt::format(", {} shared{}", spec.shared_hidden, spec.shared_gate ? " gated" : "");
  return out;
}

std::string text(const FfnWithExpertsSpec& spec) { return text(spec.ffn) + " beside " + text(spec.experts); }

std::string text(const LayerSpec& layer) {
  const auto print = [](const auto& part) { return text(part); };
  std::string out = fmt::format("{}; {}", std::visit(print, layer.mixer), std::visit(print, layer.ffn));
  if (!layer.norms.after_mixer.empty()) {
    out += layer.norms.of_sums                ? "; norms of sums"
           : layer.norms.before_mixer.empty() ? "; norms after, none before"
                                              : "; post norms";
  }
  if (layer.parallel) out += "; parallel";
  if (layer.scaled) out += "; scaled";
  if (layer.residual_factor != 1.0F) out += fmt::format("; residual x {:.6g}", layer.residual_factor);
  return out;
}

std::string text(const NormSpec& norm) {
  std::string out = fmt::format("{} norm eps {:g}", norm.kind == NormKind::rms ? "rms" : "layer", norm.eps);
  if (norm.offset != 0) out += fmt::format(", weights + {:g}", norm.offset);
  if (norm.bias) out += ", bias";
  return out;
}

std::string text(const PoolerSpec& spec) {
  constexpr const char* poolings[] = {"first token", "mean", "last token"};
  constexpr const char* functions[] = {"", ", tanh", ", gelu"};
  std::string out = fmt::format("pooling: {}", poolings[static_cast<size_t>(spec.pooling)]);
  for (const DenseSpec& dense : spec.dense) {
    out += fmt::format("; dense {}{}{}", dense.size, dense.bias ? ", bias" : "",
                       functions[static_cast<size_t>(dense.function)]);
  }
  if (!spec.head) return out;
  if (!spec.head->dense.empty()) out += "; dense" + std::string(functions[static_cast<size_t>(spec.head->function)]);
  if (!spec.head->norm.empty()) out += ", norm";
  if (spec.head->tokens)
    return out + fmt::format("; tokens {} and {}", spec.head->tokens->first, spec.head->tokens->second);
  return out + fmt::format("; {} scores{}", spec.head->labels, spec.head->output_bias ? ", bias" : "");
}

/// The layers equal to `layers[first]`, as ranges: "0-4 6-10".
std::string equal_layers(const std::vector<LayerSpec>& layers, size_t first) {
  std::string out;
  for (size_t i = first; i < layers.size(); ++i) {
    if (!(layers[i] == layers[first])) continue;
    size_t last = i;
    while (last + 1 < layers.size() && layers[last + 1] == layers[first]) ++last;
    out += last == i ? fmt::format(" {}", i) : fmt::format(" {}-{}", i, last);
    i = last;
  }
  return out;
}

/// How long a layer keeps its tokens (0: always) and how many values of each.
struct Cached {
  int window = 0;
  int values = 0;
};
Cached cached(const AttentionSpec& spec) { return {spec.window, 2 * spec.kv_heads * spec.head_dim}; }
Cached cached(const SharedAttentionSpec& /*spec*/) { return {}; }
Cached cached(const MlaSpec& spec) { return {0, spec.cached_dim()}; }
Cached cached(const DeltaNetSpec& /*spec*/) { return {}; }
Cached cached(const ShortConvSpec& /*spec*/) { return {}; }

/// Bytes that a layer keeps of each row, whatever its length.
int64_t state_bytes(const DeltaNetSpec& spec, int /*dim*/) {
  return short_conv_state_bytes(spec.taps, spec.channels()) +
         delta_net_state_bytes(spec.value_heads, spec.key_dim, spec.value_dim);
}
int64_t state_bytes(const ShortConvSpec& spec, int dim) { return short_conv_state_bytes(spec.taps, dim); }
template <typename Spec>
int64_t state_bytes(const Spec& /*spec*/, int /*dim*/) {
  return 0;
}

/// Layers of one kind have pages of equal size and life.
struct Kind {
  int window = 0;
  int64_t layer_bytes = 0;
  std::vector<int> layers;
};

std::vector<Kind> kinds_of(const DecoderSpec& spec, int page_tokens, int element_bytes) {
  std::vector<Kind> kinds;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const Cached layer = std::visit([](const auto& mixer) { return cached(mixer); }, spec.layers[i].mixer);
    if (layer.values == 0) continue;
    const int64_t bytes = int64_t{layer.values} * page_tokens * element_bytes;
    auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& known) {
      return known.window == layer.window && known.layer_bytes == bytes;
    });
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), Kind{layer.window, bytes, {}});
    kind->layers.push_back(static_cast<int>(i));
  }
  // Full attention first: group 0 is then the one that keeps every token.
  std::sort(kinds.begin(), kinds.end(), [](const Kind& a, const Kind& b) {
    return std::tie(a.window, a.layer_bytes) < std::tie(b.window, b.layer_bytes);
  });
  return kinds;
}

KvLayout one_layer_at_a_time(const DecoderSpec& spec, int element_bytes) {
  KvLayout layout;
  KvGroup& group = layout.groups.emplace_back();
  for (const Kind& kind : kinds_of(spec, layout.page_tokens, element_bytes)) {
    group.layer_bytes = std::max(group.layer_bytes, kind.layer_bytes);
    group.layers.insert(group.layers.end(), kind.layers.begin(), kind.layers.end());
  }
  layout.page_bytes = group.layer_bytes;
  layout.layers.resize(spec.layers.size());
  return layout;
}

}  // namespace

int64_t KvLayout::extent_bytes() const {
  const int64_t one = groups.empty() ? page_bytes : groups.front().layer_bytes;
  const bool equal = std::ranges::all_of(groups, [&](const KvGroup& group) { return group.layer_bytes == one; });
  return state_bytes == 0 && equal ? one : page_bytes;
}

namespace {

size_t layers_per_group(const std::vector<Kind>& kinds, size_t layers) {
  size_t size = layers;
  for (const Kind& kind : kinds) size = std::min(size, kind.layers.size());
  for (; size > 1; --size) {
    size_t empty = 0;
    for (const Kind& kind : kinds) empty += (size - kind.layers.size() % size) % size;
    if (empty * 25 <= layers) break;
  }
  return size;
}

}  // namespace

const RopeSpec* rope_of(const Mixer& mixer) {
  return std::visit(
      [](const auto& spec) -> const RopeSpec* {
        if constexpr (requires { spec.rope; }) return &spec.rope;
        return nullptr;
      },
      mixer);
}

std::string describe(const DecoderSpec& spec) {
  std::string out = fmt::format("{}: {} layers, dim {}, vocabulary {}, {} positions\n", spec.architecture,
                                spec.layers.size(), spec.dim, spec.vocab, spec.max_positions);
  out += text(spec.norm);
  if (spec.embedding_scale != 1.0F) out += fmt::format("; embedding x {:.6g}", spec.embedding_scale);
  if (spec.learned_positions > 0) out += fmt::format("; {} learned positions", spec.learned_positions);
  if (spec.text_types > 0) out += fmt::format("; {} types of text", spec.text_types);
  if (spec.embedding_norm) out += "; norm of the embedding";
  if (spec.layer_input) {
    out += fmt::format("; {} inputs of each layer, {}", spec.layer_input->dim, name(spec.layer_input->activation));
  }
  if (spec.final_norm.empty()) out += "; no last norm";
  out += spec.pooler ? "; no output" : spec.tied ? "; tied output" : "; own output";
  if (spec.output_bias) out += " with bias";
  if (spec.logit_scale != 1.0F) out += fmt::format(" x {:.6g}", spec.logit_scale);
  if (spec.logit_softcap > 0) out += fmt::format(", softcap {:g}", spec.logit_softcap);
  out += '\n';
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const auto before = spec.layers.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(spec.layers.begin(), before, spec.layers[i]) != before) continue;
    out += fmt::format("layers{}: {}\n", equal_layers(spec.layers, i), text(spec.layers[i]));
  }
  if (spec.pooler) out += text(*spec.pooler) + '\n';
  return out;
}

bool is_causal(const DecoderSpec& spec) {
  return std::all_of(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& layer) {
    const auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
    return attention == nullptr || attention->causal;
  });
}

bool is_recurrent(const DecoderSpec& spec) {
  return std::any_of(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& layer) {
    return std::holds_alternative<DeltaNetSpec>(layer.mixer) || std::holds_alternative<ShortConvSpec>(layer.mixer);
  });
}

int KvLayout::snapshot_tokens() const {
  constexpr int least = 512;
  const int pages = state_pages() / static_cast<int>(groups.size()) + 1;
  return (std::max(least, pages * page_tokens) + page_tokens - 1) / page_tokens * page_tokens;
}

KvLayout kv_layout(const DecoderSpec& spec, int kv_element_bytes) {
  KvLayout layout;
  if (!is_causal(spec)) return one_layer_at_a_time(spec, kv_element_bytes);
  const std::vector<Kind> kinds = kinds_of(spec, layout.page_tokens, kv_element_bytes);
  size_t paged = 0;
  for (const Kind& kind : kinds) paged += kind.layers.size();
  CHECK(paged > 0);
  const size_t size = layers_per_group(kinds, paged);
  layout.layers.resize(spec.layers.size());
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    layout.layers[i] = {-1, layout.state_bytes};
    const int64_t bytes =
        std::visit([&](const auto& mixer) { return state_bytes(mixer, spec.dim); }, spec.layers[i].mixer);
    layout.state_bytes += (bytes + 63) / 64 * 64;
  }
  for (const Kind& kind : kinds) {
    for (size_t first = 0; first < kind.layers.size(); first += size) {
      const size_t last = std::min(first + size, kind.layers.size());
      KvGroup group{kind.window, {}, kind.layer_bytes};
      for (size_t i = first; i < last; ++i) {
        const int layer = kind.layers[i];
        layout.layers[static_cast<size_t>(layer)] = {static_cast<int>(layout.groups.size()),
                                                     static_cast<int64_t>(i - first) * kind.layer_bytes};
        group.layers.push_back(layer);
      }
      layout.page_bytes = std::max(layout.page_bytes, static_cast<int64_t>(size) * kind.layer_bytes);
      layout.groups.push_back(std::move(group));
    }
  }
  return layout;
}

}  // namespace quern
