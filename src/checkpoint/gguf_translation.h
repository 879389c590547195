// GgufTranslation: the metadata of a GGUF file on its way to the keys of config.json, in steps that an architecture
// takes or replaces.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/gguf.h"
#include "checkpoint/gguf_architecture.h"

namespace quern {

class GgufTranslation {
 public:
  GgufTranslation(const Gguf& gguf, const GgufArchitecture& architecture) : gguf_(gguf), architecture_(architecture) {}

  /// What most have: shape(), heads(), vocabulary(), rope(), dense_ffn().
  Status common();

  /// sizes(), and the size of the ffn.
  Status shape();
  /// Layers, width, context length, and the epsilon of its kind of norm.
  Status sizes();
  Status heads();
  /// The embedding tells the vocabulary's size; the key and the token list count when there is none.
  Status vocabulary();
  Status rope();
  /// What heads() and rope() do, of attention over latents.
  Status latent_heads();
  /// Number, use and size of experts.
  Status experts();
  /// And what DeepSeek's routing adds: dense layers, shared experts, groups and the factor on weights.
  Status deepseek_routing();
  /// What an array of one number for each layer says, or one number for all: each in [1, most].
  Result<std::vector<int64_t>> of_layers(std::string_view name, int64_t most) const;
  /// Refuses experts, and asks for the size of the ffn.
  Status dense_ffn();
  /// "layer_types" of a model whose layers have windows: the file's pattern, or that every `period`-th is full.
  Status windows(int64_t period);
  /// Copies a positive number of the file, when there is one, to `name`.
  Status copy_number(std::string_view key_name, std::string_view name);

  std::string key(std::string_view name) const;
  /// A size inside [1, most]; a list is taken when all layers have the same.
  Result<std::optional<int64_t>> size(std::string_view name, int64_t most) const;
  Result<int64_t> needed_size(std::string_view name, int64_t most) const;
  /// A positive number.
  Result<std::optional<double>> positive(std::string_view name) const;
  /// The numbers of a tensor of one rotary pair each: what its frequency is divided by.
  Result<Json::Array> rope_factors(std::string_view tensor_name, int64_t pairs) const;
  /// Copies a whole number in [1, most], when there is one, to `name`.
  Status copy_size(std::string_view key_name, std::string_view name, int64_t most);
  bool has_tensor(std::string_view name) const { return gguf_.find_tensor(name) != nullptr; }

  const Gguf& gguf() const { return gguf_; }
  Json& config() { return config_; }
  /// Changes keys of "rope_scaling", if the rope is scaled.
  void change_rope_scaling(std::initializer_list<std::pair<std::string_view, Json>> changes);
  int64_t layers() const { return layers_; }
  int64_t hidden() const { return hidden_; }
  int64_t attention_heads() const { return heads_; }
  int64_t head_dim() const { return head_dim_; }

 private:
  Status norm_epsilon();
  Result<std::optional<int64_t>> kv_heads() const;
  Status rope_rule(double factor);

  const Gguf& gguf_;
  const GgufArchitecture& architecture_;
  Json config_;
  int64_t layers_ = 0, hidden_ = 0, heads_ = 0, head_dim_ = 0;
};

}  // namespace quern
