// Phi 3 to 4. "ffn_up" holds gate and up.
#include <fmt/format.h>

#include "checkpoint/gguf_translation.h"

namespace quern {
namespace {

constexpr GgufName names[] = {{"ffn_up", "mlp.gate_up_proj"}};

/// Two lists of what frequencies are divided by, as tensors.
Status longrope(GgufTranslation& translation) {
  constexpr std::string_view long_list = "rope_factors_long.weight";
  constexpr std::string_view short_list = "rope_factors_short.weight";
  if (!translation.has_tensor(long_list)) return {};
  if (!translation.has_tensor(short_list)) {
    return Error{
        fmt::format("{}: has a tensor \"{}\", but no \"{}\"", translation.gguf().path(), long_list, short_list)};
  }
  ASSIGN_OR_RETURN(const auto rotated, translation.size("rope.dimension_count", translation.head_dim()));
  const int64_t pairs = rotated.value_or(translation.head_dim()) / 2;
  ASSIGN_OR_RETURN(const int64_t original,
                   translation.needed_size("rope.scaling.original_context_length", int64_t{1} << 27));
  ASSIGN_OR_RETURN(const auto factor, translation.positive("rope.scaling.attn_factor"));
  ASSIGN_OR_RETURN(Json::Array longer, translation.rope_factors(long_list, pairs));
  ASSIGN_OR_RETURN(Json::Array shorter, translation.rope_factors(short_list, pairs));
  Json rule;
  rule.set("rope_type", "longrope").set("long_factor", std::move(longer)).set("short_factor", std::move(shorter));
  rule.set("original_max_position_embeddings", original);
  if (factor) rule.set("attention_factor", *factor);
  translation.config().set("rope_scaling", std::move(rule));
  return {};
}

Status phi3(GgufTranslation& translation) {
  TRY(translation.common());
  ASSIGN_OR_RETURN(const auto window, translation.gguf().integer(translation.key("attention.sliding_window")));
  if (window) translation.config().set("sliding_window", *window);
  return longrope(translation);
}

const GgufEntry third{
    {.name = "phi3", .model_type = "phi3", .class_name = "Phi3ForCausalLM", .translate = phi3, .names = names}};

}  // namespace
}  // namespace quern
