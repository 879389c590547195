// GGUF metadata as config.json and generation_config.json.
#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <string_view>

#include "checkpoint/gguf_checkpoint.h"
#include "checkpoint/wording.h"
#include "formats/words.h"

namespace quern {
namespace {

struct Architecture {
  std::string_view gguf, model_type, class_name;
};
constexpr Architecture architectures[] = {
    {"gemma3", "gemma3_text", "Gemma3ForCausalLM"},   {"llama", "llama", "LlamaForCausalLM"},
    {"qwen2", "qwen2", "Qwen2ForCausalLM"},           {"qwen3", "qwen3", "Qwen3ForCausalLM"},
    {"qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM"},
};

/// Reads keys below the architecture's prefix and writes those of config.json.
class Translation {
 public:
  Translation(const Gguf& gguf, const Architecture& architecture) : gguf_(gguf), architecture_(architecture) {}

  Result<Json> run();

 private:
  std::string key(std::string_view name) const { return fmt::format("{}.{}", architecture_.gguf, name); }
  /// A size inside [1, most]; a list is taken when all layers have the same.
  Result<std::optional<int64_t>> size(std::string_view name, int64_t most) const;
  Result<int64_t> needed_size(std::string_view name, int64_t most) const;
  /// A positive number.
  Result<std::optional<double>> positive(std::string_view name) const;

  Status shape();
  Status heads();
  Status vocabulary();
  Status rope();
  Status rope_rule(double factor);
  Result<Json::Array> rope_factors() const;
  Status experts();
  Status gemma();
  Status windows();
  bool has_tensor(std::string_view name) const { return gguf_.find_tensor(name) != nullptr; }

  const Gguf& gguf_;
  const Architecture& architecture_;
  Json config_;
  int64_t layers_ = 0, hidden_ = 0, heads_ = 0, head_dim_ = 0;
};

Result<std::optional<int64_t>> Translation::size(std::string_view name, int64_t most) const {
  ASSIGN_OR_RETURN(const auto values, gguf_.integers(key(name)));
  if (!values) return std::optional<int64_t>();
  if (values->empty()) return gguf_.refuse(key(name), "is an empty array");
  for (const int64_t value : *values) {
    if (value < 1 || value > most) return gguf_.refuse(key(name), fmt::format("is {}, expected 1 to {}", value, most));
    if (value != values->front()) return gguf_.refuse(key(name), "differs between layers, which is not supported");
  }
  return std::optional(values->front());
}

Result<int64_t> Translation::needed_size(std::string_view name, int64_t most) const {
  ASSIGN_OR_RETURN(const std::optional<int64_t> value, size(name, most));
  if (!value) return gguf_.refuse(key(name), "is missing");
  return *value;
}

Result<std::optional<double>> Translation::positive(std::string_view name) const {
  ASSIGN_OR_RETURN(const std::optional<double> value, gguf_.number(key(name)));
  if (value && *value <= 0) return gguf_.refuse(key(name), fmt::format("is {}, expected a positive number", *value));
  return value;
}

Result<Json> Translation::run() {
  config_.set("architectures", Json::Array{architecture_.class_name});
  config_.set("model_type", architecture_.model_type);
  TRY(shape());
  TRY(heads());
  TRY(vocabulary());
  TRY(rope());
  TRY(experts());
  if (architecture_.gguf == "gemma3") TRY(gemma());
  return std::move(config_);
}

Status Translation::shape() {
  ASSIGN_OR_RETURN(layers_, needed_size("block_count", 10'000));
  ASSIGN_OR_RETURN(hidden_, needed_size("embedding_length", 1 << 20));
  ASSIGN_OR_RETURN(const int64_t context, needed_size("context_length", int64_t{1} << 27));
  ASSIGN_OR_RETURN(const auto intermediate, size("feed_forward_length", 1 << 20));
  ASSIGN_OR_RETURN(const auto eps, positive("attention.layer_norm_rms_epsilon"));
  if (!eps) return gguf_.refuse(key("attention.layer_norm_rms_epsilon"), "is missing");
  config_.set("num_hidden_layers", layers_).set("hidden_size", hidden_).set("max_position_embeddings", context);
  config_.set("rms_norm_eps", *eps);
  if (intermediate) config_.set("intermediate_size", *intermediate);
  return {};
}

Status Translation::heads() {
  ASSIGN_OR_RETURN(heads_, needed_size("attention.head_count", 1 << 16));
  ASSIGN_OR_RETURN(const auto kv_heads, size("attention.head_count_kv", heads_));
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
  config_.set("attention_bias", has_tensor("blk.0.attn_q.bias"));
  config_.set("mlp_bias", has_tensor("blk.0.ffn_up.bias"));
  return {};
}

/// The embedding tells the vocabulary's size; the key and the token list count when there is none.
Status Translation::vocabulary() {
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

Status Translation::rope() {
  ASSIGN_OR_RETURN(const auto dims, size("rope.dimension_count", 1 << 16));
  if (head_dim_ % 2 != 0)
    return gguf_.refuse(key("attention.key_length"), fmt::format("gives odd heads of {}", head_dim_));
  if (dims.value_or(head_dim_) != head_dim_) {
    return gguf_.refuse(key("rope.dimension_count"), fmt::format("is {}, but heads have {}", *dims, head_dim_));
  }
  ASSIGN_OR_RETURN(const auto theta, positive("rope.freq_base"));
  ASSIGN_OR_RETURN(const auto new_factor, positive("rope.scaling.factor"));
  ASSIGN_OR_RETURN(const auto old_factor, positive("rope.scale_linear"));
  config_.set("rope_theta", theta.value_or(10000.0));
  return rope_rule(new_factor.value_or(old_factor.value_or(1.0)));
}

Status Translation::rope_rule(double factor) {
  ASSIGN_OR_RETURN(const auto stored, gguf_.string(key("rope.scaling.type")));
  const std::string type = stored.value_or("linear");
  if (has_tensor("rope_freqs.weight")) {
    if (type == "yarn") return gguf_.refuse(key("rope.scaling.type"), "is yarn beside a tensor rope_freqs.weight");
    ASSIGN_OR_RETURN(Json::Array factors, rope_factors());
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

/// Llama 3's scaling is stored as what each frequency is divided by.
Result<Json::Array> Translation::rope_factors() const {
  const StoredTensor& tensor = *gguf_.find_tensor("rope_freqs.weight");
  if (tensor.type != "F32" || tensor.shape != std::vector<int64_t>{head_dim_ / 2}) {
    return Error{fmt::format("{}: tensor \"rope_freqs.weight\" is {} {}, expected F32 [{}]", gguf_.path(), tensor.type,
                             shape_text(tensor.shape), head_dim_ / 2)};
  }
  Json::Array factors;
  for (int64_t i = 0; i < head_dim_ / 2; ++i) {
    const float factor = std::bit_cast<float>(load_u32(tensor.bytes.data() + 4 * i));
    if (!std::isfinite(factor) || factor <= 0) {
      return Error{fmt::format("{}: tensor \"rope_freqs.weight\" holds {} at place {}", gguf_.path(), factor, i)};
    }
    factors.emplace_back(double{factor});
  }
  return factors;
}

Status Translation::experts() {
  // Dense files may say so with a count of 0.
  ASSIGN_OR_RETURN(const auto stored, gguf_.integer(key("expert_count")));
  const bool moe = architecture_.gguf == "qwen3moe";
  if (!moe && stored.value_or(0) == 0) {
    if (!config_.has("intermediate_size")) return gguf_.refuse(key("feed_forward_length"), "is missing");
    return {};
  }
  if (!moe) {
    return gguf_.refuse(key("expert_count"),
                        fmt::format("is {}, but {} with experts is not supported", *stored, architecture_.gguf));
  }
  ASSIGN_OR_RETURN(const int64_t count, needed_size("expert_count", 1 << 12));
  ASSIGN_OR_RETURN(const int64_t used, needed_size("expert_used_count", count));
  ASSIGN_OR_RETURN(const int64_t hidden, needed_size("expert_feed_forward_length", 1 << 20));
  ASSIGN_OR_RETURN(const auto renormalize, gguf_.boolean(key("expert_weights_norm")));
  config_.set("num_experts", count).set("num_experts_per_tok", used).set("moe_intermediate_size", hidden);
  config_.set("norm_topk_prob", renormalize.value_or(true));
  return {};
}

Status Translation::gemma() {
  constexpr int64_t layers_of_27b = 62;  // the one size whose scale is not that of its heads
  ASSIGN_OR_RETURN(const auto scale, positive("attention.scale"));
  ASSIGN_OR_RETURN(const auto cap, positive("final_logit_softcapping"));
  ASSIGN_OR_RETURN(const auto local_theta, positive("rope.freq_base_swa"));
  const int64_t scalar = layers_ == layers_of_27b ? hidden_ / heads_ : head_dim_;
  config_.set("query_pre_attn_scalar", scale ? Json(1.0 / (*scale * *scale)) : Json(scalar));
  if (cap) config_.set("final_logit_softcapping", *cap);
  config_.set("rope_local_base_freq", local_theta.value_or(10000.0));
  config_.set("hidden_activation", "gelu_pytorch_tanh");
  config_.set("gguf_norms_offset", true);  // the norms hold the 1 that other files leave to the model
  return windows();
}

/// One number: every so many layers, one is full. A list: whether a layer has a window.
Status Translation::windows() {
  ASSIGN_OR_RETURN(const auto window, size("attention.sliding_window", int64_t{1} << 27));
  if (!window) return {};
  ASSIGN_OR_RETURN(const auto stored, gguf_.integers(key("attention.sliding_window_pattern")));
  const std::vector<int64_t> pattern = stored.value_or(std::vector<int64_t>{6});
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

/// Parts of models and whole models that were cut up.
Status refuse_other_kinds(const Gguf& gguf) {
  ASSIGN_OR_RETURN(const auto type, gguf.string("general.type"));
  if (type && *type != "model") {
    return gguf.refuse("general.type", fmt::format("is {}, expected a model", quoted(*type)));
  }
  ASSIGN_OR_RETURN(const auto parts, gguf.integer("split.count"));
  ASSIGN_OR_RETURN(const auto number, gguf.integer("split.no"));
  if (parts && (*parts < 0 || *parts > 1)) {
    return gguf.refuse("split.count",
                       fmt::format("says that this is part {} of {}; join the parts first (llama-gguf-split "
                                   "--merge)",
                                   number.value_or(0) + 1, *parts));
  }
  return {};
}

}  // namespace

Result<Json> gguf_config(const Gguf& gguf) {
  TRY(refuse_other_kinds(gguf));
  ASSIGN_OR_RETURN(const auto name, gguf.string("general.architecture"));
  if (!name) return gguf.refuse("general.architecture", "is missing");
  std::vector<std::string_view> known;
  for (const Architecture& architecture : architectures) {
    if (architecture.gguf == *name) return Translation(gguf, architecture).run();
    known.push_back(architecture.gguf);
  }
  return Error{fmt::format("{}: the architecture {} is not supported (known: {})", gguf.path(), quoted(*name),
                           list_text(known))};
}

namespace {

Result<std::optional<int64_t>> token_id(const Gguf& gguf, std::string_view name, int64_t vocab) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
  ASSIGN_OR_RETURN(const auto id, gguf.integer(key));
  if (id && (*id < 0 || *id >= vocab))
    return gguf.refuse(key, fmt::format("is {}, but there are {} tokens", *id, vocab));
  return id;
}

}  // namespace

Result<Json> gguf_generation_config(const Gguf& gguf, int64_t vocab) {
  struct Key {
    std::string_view gguf, name;
  };
  constexpr Key ids[] = {{"bos", "bos_token_id"}, {"padding", "pad_token_id"}};
  constexpr Key numbers[] = {
      {"temp", "temperature"}, {"top_p", "top_p"}, {"min_p", "min_p"}, {"penalty_repeat", "repetition_penalty"}};
  Json config;
  Json::Array ends;
  for (const std::string_view end : {"eos", "eot", "eom"}) {
    ASSIGN_OR_RETURN(const auto id, token_id(gguf, end, vocab));
    if (id && std::find(ends.begin(), ends.end(), Json(*id)) == ends.end()) ends.emplace_back(*id);
  }
  if (ends.size() == 1) config.set("eos_token_id", ends.front());
  if (ends.size() > 1) config.set("eos_token_id", std::move(ends));
  for (const Key& key : ids) {
    ASSIGN_OR_RETURN(const auto id, token_id(gguf, key.gguf, vocab));
    if (id) config.set(key.name, *id);
  }
  for (const Key& key : numbers) {
    ASSIGN_OR_RETURN(const auto number, gguf.number(fmt::format("general.sampling.{}", key.gguf)));
    if (number) config.set(key.name, *number);
  }
  ASSIGN_OR_RETURN(const auto top_k, gguf.integer("general.sampling.top_k"));
  if (top_k) config.set("top_k", *top_k);
  return config;
}

}  // namespace quern
