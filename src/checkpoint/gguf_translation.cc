#include "checkpoint/gguf_translation.h"

#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <vector>

#include "checkpoint/wording.h"
#include "formats/words.h"

namespace quern {

std::string GgufTranslation::key(std::string_view name) const { return fmt::format("{}.{}", architecture_.name, name); }

Result<std::optional<int64_t>> GgufTranslation::size(std::string_view name, int64_t most) const {
  ASSIGN_OR_RETURN(const auto values, gguf_.integers(key(name)));
  if (!values) return std::optional<int64_t>();
  if (values->empty()) return gguf_.refuse(key(name), "is an empty array");
  for (const int64_t value : *values) {
    if (value < 1 || value > most) return gguf_.refuse(key(name), fmt::format("is {}, expected 1 to {}", value, most));
    if (value != values->front()) return gguf_.refuse(key(name), "differs between layers, which is not supported");
  }
  return std::optional(values->front());
}

Result<int64_t> GgufTranslation::needed_size(std::string_view name, int64_t most) const {
  ASSIGN_OR_RETURN(const std::optional<int64_t> value, size(name, most));
  if (!value) return gguf_.refuse(key(name), "is missing");
  return *value;
}

Result<std::optional<double>> GgufTranslation::positive(std::string_view name) const {
  ASSIGN_OR_RETURN(const std::optional<double> value, gguf_.number(key(name)));
  if (value && *value <= 0) return gguf_.refuse(key(name), fmt::format("is {}, expected a positive number", *value));
  return value;
}

Status GgufTranslation::common() {
  TRY(shape());
  TRY(heads());
  TRY(vocabulary());
  TRY(rope());
  return dense_ffn();
}

Status GgufTranslation::shape() {
  TRY(sizes());
  return copy_size("feed_forward_length", "intermediate_size", 1 << 20);
}

Status GgufTranslation::sizes() {
  ASSIGN_OR_RETURN(layers_, needed_size("block_count", 10'000));
  ASSIGN_OR_RETURN(hidden_, needed_size("embedding_length", 1 << 20));
  ASSIGN_OR_RETURN(const int64_t context, needed_size("context_length", int64_t{1} << 27));
  config_.set("num_hidden_layers", layers_).set("hidden_size", hidden_).set("max_position_embeddings", context);
  return norm_epsilon();
}

/// Of root-mean-square norms, or of those that take the mean off.
Status GgufTranslation::norm_epsilon() {
  ASSIGN_OR_RETURN(const auto rms, positive("attention.layer_norm_rms_epsilon"));
  ASSIGN_OR_RETURN(const auto layer, positive("attention.layer_norm_epsilon"));
  if (!rms && !layer) return gguf_.refuse(key("attention.layer_norm_rms_epsilon"), "is missing");
  config_.set(rms ? "rms_norm_eps" : "layer_norm_eps", rms ? *rms : *layer);
  return {};
}

Status GgufTranslation::heads() {
  ASSIGN_OR_RETURN(heads_, needed_size("attention.head_count", 1 << 16));
  ASSIGN_OR_RETURN(const auto kv_heads, this->kv_heads());
  ASSIGN_OR_RETURN(const auto key_length, size("attention.key_length", 1 << 16));
  ASSIGN_OR_RETURN(const auto value_length, size("attention.value_length", 1 << 16));
  if (heads_ % kv_heads.value_or(heads_) != 0) {
    return gguf_.refuse(key("attention.head_count_kv"),
                        fmt::format("is {}, which does not divide {} heads", *kv_heads, heads_));
  }
  if (!key_length && hidden_ % heads_ != 0) {
    return gguf_.refuse(key("attention.head_count"),
                        fmt::format("is {}, which does not divide the size {}", heads_, hidden_));
  }
  head_dim_ = key_length.value_or(hidden_ / heads_);
  if (value_length.value_or(head_dim_) != head_dim_) {
    return gguf_.refuse(key("attention.value_length"),
                        fmt::format("is {}, but keys have {}", *value_length, head_dim_));
  }
  config_.set("num_attention_heads", heads_).set("num_key_value_heads", kv_heads.value_or(heads_));
  config_.set("head_dim", head_dim_);
  config_.set("attention_bias", has_tensor("blk.0.attn_q.bias") || has_tensor("blk.0.attn_qkv.bias"));
  config_.set("mlp_bias", has_tensor("blk.0.ffn_up.bias"));
  return {};
}

Result<std::optional<int64_t>> GgufTranslation::kv_heads() const {
  if (!architecture_.attention_in_some) return size("attention.head_count_kv", heads_);
  ASSIGN_OR_RETURN(const auto listed, gguf_.integers(key("attention.head_count_kv")));
  std::optional<int64_t> heads;
  for (const int64_t count : listed.value_or(std::vector<int64_t>())) {
    if (count == 0) continue;
    if (count < 0 || count > heads_ || (heads && count != *heads)) {
      return gguf_.refuse(key("attention.head_count_kv"), fmt::format("has {}, expected one number or 0", count));
    }
    heads = count;
  }
  return heads;
}

Status GgufTranslation::vocabulary() {
  ASSIGN_OR_RETURN(std::optional<int64_t> vocab, size("vocab_size", 1 << 28));
  if (const StoredTensor* embedding = gguf_.find_tensor("token_embd.weight")) {
    if (embedding->shape.size() != 2 || embedding->shape[1] != hidden_) {
      return Error{fmt::format("{}: tensor \"token_embd.weight\" is {}, expected rows of {}", gguf_.path(),
                               shape_text(embedding->shape), hidden_)};
    }
    vocab = embedding->shape[0];
  }
  if (!vocab) {
    ASSIGN_OR_RETURN(const auto tokens, gguf_.strings("tokenizer.ggml.tokens"));
    if (tokens && !tokens->empty()) vocab = static_cast<int64_t>(tokens->size());
  }
  if (!vocab) return gguf_.refuse(key("vocab_size"), "is missing, and so are embedding and tokens");
  config_.set("vocab_size", *vocab).set("tie_word_embeddings", !has_tensor("output.weight"));
  return {};
}

Status GgufTranslation::rope() {
  ASSIGN_OR_RETURN(const auto dims, size("rope.dimension_count", 1 << 16));
  if (head_dim_ % 2 != 0)
    return gguf_.refuse(key("attention.key_length"), fmt::format("gives odd heads of {}", head_dim_));
  const int64_t rotated = dims.value_or(head_dim_);
  if (rotated > head_dim_ || rotated % 2 != 0 || (architecture_.rotary_pairs && rotated != head_dim_)) {
    return gguf_.refuse(key("rope.dimension_count"), fmt::format("is {}, but heads have {}", rotated, head_dim_));
  }
  if (rotated != head_dim_) {
    config_.set("partial_rotary_factor", static_cast<double>(rotated) / static_cast<double>(head_dim_));
  }
  ASSIGN_OR_RETURN(const auto theta, positive("rope.freq_base"));
  ASSIGN_OR_RETURN(const auto new_factor, positive("rope.scaling.factor"));
  ASSIGN_OR_RETURN(const auto old_factor, positive("rope.scale_linear"));
  config_.set("rope_theta", theta.value_or(10000.0));
  return rope_rule(new_factor.value_or(old_factor.value_or(1.0)));
}

Status GgufTranslation::rope_rule(double factor) {
  ASSIGN_OR_RETURN(const auto stored, gguf_.string(key("rope.scaling.type")));
  const std::string type = stored.value_or("linear");
  if (has_tensor("rope_freqs.weight")) {
    if (type == "yarn") return gguf_.refuse(key("rope.scaling.type"), "is yarn beside a tensor rope_freqs.weight");
    ASSIGN_OR_RETURN(Json::Array factors, rope_factors("rope_freqs.weight", head_dim_ / 2));
    config_.set("rope_scaling", Json().set("rope_type", "factors").set("factors", std::move(factors)));
    return {};
  }
  if (type == "none" || (type == "linear" && factor == 1.0)) return {};
  if (type != "linear" && type != "yarn") {
    return gguf_.refuse(key("rope.scaling.type"), fmt::format("is {}, expected none, linear or yarn", quoted(type)));
  }
  Json rule;
  rule.set("rope_type", type).set("factor", factor);
  if (type == "yarn") {
    ASSIGN_OR_RETURN(const auto original, size("rope.scaling.original_context_length", int64_t{1} << 27));
    ASSIGN_OR_RETURN(const auto attention, positive("rope.scaling.attn_factor"));
    ASSIGN_OR_RETURN(const auto fast, positive("rope.scaling.yarn_beta_fast"));
    ASSIGN_OR_RETURN(const auto slow, positive("rope.scaling.yarn_beta_slow"));
    if (original) rule.set("original_max_position_embeddings", *original);
    // The file's factor comes on top of the one that follows from the length.
    if (attention) rule.set("attention_factor", *attention * (factor > 1 ? 0.1 * std::log(factor) + 1.0 : 1.0));
    if (fast) rule.set("beta_fast", *fast);
    if (slow) rule.set("beta_slow", *slow);
  }
  config_.set("rope_scaling", std::move(rule));
  return {};
}

Result<Json::Array> GgufTranslation::rope_factors(std::string_view tensor_name, int64_t pairs) const {
  const StoredTensor& tensor = *gguf_.find_tensor(tensor_name);
  const std::string what = fmt::format("{}: tensor {}", gguf_.path(), quoted(tensor_name));
  if (tensor.type != "F32" || tensor.shape != std::vector<int64_t>{pairs}) {
    return Error{fmt::format("{} is {} {}, expected F32 [{}]", what, tensor.type, shape_text(tensor.shape), pairs)};
  }
  Json::Array factors;
  for (int64_t i = 0; i < pairs; ++i) {
    const float factor = std::bit_cast<float>(load_u32(tensor.bytes.data() + 4 * i));
    if (!std::isfinite(factor) || factor <= 0) return Error{fmt::format("{} holds {} at place {}", what, factor, i)};
    factors.emplace_back(double{factor});
  }
  return factors;
}

Result<std::vector<int64_t>> GgufTranslation::of_layers(std::string_view name, int64_t most) const {
  ASSIGN_OR_RETURN(auto values, gguf_.integers(key(name)));
  if (!values) return gguf_.refuse(key(name), "is missing");
  const auto layers = static_cast<size_t>(layers_);
  if (values->size() == 1) values->resize(layers, values->front());
  if (values->size() != layers) return gguf_.refuse(key(name), "has not one entry a layer");
  for (const int64_t value : *values) {
    if (value < 1 || value > most) return gguf_.refuse(key(name), fmt::format("has {}, expected 1 to {}", value, most));
  }
  return *std::move(values);
}

Status GgufTranslation::dense_ffn() {
  // Dense files may say so with a count of 0.
  ASSIGN_OR_RETURN(const auto experts, gguf_.integer(key("expert_count")));
  if (experts.value_or(0) != 0) {
    return gguf_.refuse(key("expert_count"),
                        fmt::format("is {}, but {} with experts is not supported", *experts, architecture_.name));
  }
  if (!config_.has("intermediate_size")) return gguf_.refuse(key("feed_forward_length"), "is missing");
  return {};
}

Status GgufTranslation::copy_number(std::string_view key_name, std::string_view name) {
  ASSIGN_OR_RETURN(const auto value, positive(key_name));
  if (value) config_.set(name, *value);
  return {};
}

Status GgufTranslation::copy_size(std::string_view key_name, std::string_view name, int64_t most) {
  ASSIGN_OR_RETURN(const auto value, size(key_name, most));
  if (value) config_.set(name, *value);
  return {};
}

void GgufTranslation::change_rope_scaling(std::initializer_list<std::pair<std::string_view, Json>> changes) {
  const Json* scaling = config_.find("rope_scaling");
  if (scaling == nullptr) return;
  Json changed = *scaling;
  for (const auto& [name, value] : changes) changed.set(name, value);
  config_.set("rope_scaling", std::move(changed));
}

/// One number: every so many layers, one is full. A list: whether a layer has a window.
Status GgufTranslation::windows(int64_t period) {
  ASSIGN_OR_RETURN(const auto window, size("attention.sliding_window", int64_t{1} << 27));
  if (!window) return {};
  ASSIGN_OR_RETURN(const auto stored, gguf_.integers(key("attention.sliding_window_pattern")));
  const std::vector<int64_t> pattern = stored.value_or(std::vector<int64_t>{period});
  const bool listed = static_cast<int64_t>(pattern.size()) == layers_ && layers_ > 1;
  if (!listed && (pattern.size() != 1 || pattern[0] < 1)) {
    return gguf_.refuse(key("attention.sliding_window_pattern"), "is neither a positive number nor one entry a layer");
  }
  Json::Array types;
  for (int64_t layer = 0; layer < layers_; ++layer) {
    const bool slides = listed ? pattern[static_cast<size_t>(layer)] != 0 : (layer + 1) % pattern[0] != 0;
    types.emplace_back(slides ? "sliding_attention" : "full_attention");
  }
  config_.set("sliding_window", *window).set("layer_types", std::move(types));
  return {};
}

}  // namespace quern
