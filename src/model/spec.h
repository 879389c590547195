// DecoderSpec: a model as data. A family turns a checkpoint's configuration into one; blocks read it and nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "model/pooler_spec.h"
#include "ops/gated.h"
#include "ops/moe.h"

namespace quern {

/// Rotary positions. Frequencies are computed once at load: they may be scaled by any of the known rules.
struct RopeSpec {
  int dims = 0;                            // rotated dimensions of a head; 0: no rotation
  bool interleaved = false;                // pairs (2i, 2i+1) instead of (i, i + dims/2)
  std::vector<float> inverse_frequencies;  // [dims / 2]
  float factor = 1.0F;                     // on sine and cosine

  bool operator==(const RopeSpec&) const = default;
};

/// Queries at later positions are multiplied with 1 + beta * ln(1 + floor(position / period)); beta 0: not.
struct QueryGrowth {
  float beta = 0.0F;
  float period = 1.0F;

  bool operator==(const QueryGrowth&) const = default;
};

struct AttentionSpec {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  float scale = 0.0F;
  float softcap = 0.0F;
  int window = 0;  // 0: full attention
  bool qkv_bias = false;
  bool output_bias = false;
  // Before rope; at most one of these norms.
  bool qk_norm = false;          // RMS over head_dim, one weight for all heads
  bool whole_qk_norm = false;    // RMS over all heads together
  bool qk_layer_norm = false;    // over head_dim with the mean taken off, weights for each head
  bool value_norm = false;       // RMS over head_dim of values, without weights
  bool values_are_keys = false;  // there is no projection of values: they are the keys before norm and rope
  QueryGrowth query_growth;
  bool causal = true;        // false: later tokens are seen too, with a window those less than `window` away
  bool sinks = false;        // a score for each head that takes part in the softmax and has no value
  bool output_gate = false;  // a sigmoid on each output, from rows that stand behind each head's query
  RopeSpec rope;

  bool operator==(const AttentionSpec&) const = default;
};

/// Attention to the keys and values that an earlier layer keeps. Queries have a norm before rope: RMS over head_dim.
struct SharedAttentionSpec {
  int layer = 0;  // whose keys and values they are
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  float scale = 0.0F;
  int window = 0;     // of that layer
  bool bias = false;  // of queries and output
  RopeSpec rope;

  bool operator==(const SharedAttentionSpec&) const = default;
};

/// Attention over a compressed latent of each token, from which keys and values of all heads are made (MLA). A query
/// head has dims that are not rotated, then those that are; all heads share one rotated key.
struct MlaSpec {
  int heads = 0;
  int q_rank = 0;  // size that queries are made from; 0: from the hidden state
  int kv_rank = 0;
  int plain_dim = 0;  // of a query head, not rotated
  int value_dim = 0;  // of a head
  float scale = 0.0F;
  bool bias = false;  // of the projections to and from the hidden state, but for queries without a rank
  RopeSpec rope;

  /// Of a cached token: the latent, then the rotated key.
  int cached_dim() const { return kv_rank + rope.dims; }
  bool operator==(const MlaSpec&) const = default;
};

/// Gated delta net: linear attention that keeps a matrix per head instead of keys and values, behind a short
/// convolution of queries, keys and values.
struct DeltaNetSpec {
  int key_heads = 0;
  int value_heads = 0;  // a multiple of key_heads
  int key_dim = 0;
  int value_dim = 0;
  int taps = 0;        // of the convolution
  bool tiled = false;  // value head h belongs to key head h % key_heads; else neighbours share one

  int keys() const { return key_heads * key_dim; }
  int values() const { return value_heads * value_dim; }
  int channels() const { return 2 * keys() + values(); }
  bool operator==(const DeltaNetSpec&) const = default;
};

/// A gated convolution over the last few tokens, of every dimension for itself.
struct ShortConvSpec {
  int taps = 0;
  bool bias = false;

  bool operator==(const ShortConvSpec&) const = default;
};

using Mixer = std::variant<AttentionSpec, SharedAttentionSpec, MlaSpec, DeltaNetSpec, ShortConvSpec>;
/// The rope of a mixer; null where there are no positions.
const RopeSpec* rope_of(const Mixer& mixer);

struct FfnSpec {
  int hidden = 0;
  Activation activation = Activation::silu;
  bool bias = false;

  bool operator==(const FfnSpec&) const = default;
};

/// A feed-forward part without a gate.
struct PlainFfnSpec {
  int hidden = 0;
  Activation activation = Activation::gelu_tanh;
  bool bias = false;

  bool operator==(const PlainFfnSpec&) const = default;
};

/// Routed experts, and perhaps a feed-forward part beside them that every token goes through.
struct MoeSpec {
  int experts = 0;
  int hidden = 0;
  RouterRule router;
  bool router_bias = false;  // added to logits
  bool choice_bias = false;  // added to scores where experts are chosen
  Activation activation = Activation::silu;
  bool bias = false;         // of the experts
  bool alternating = false;  // files have gate and up in turn where they keep them in one tensor
  bool transposed = false;   // files have a column for each output where they stack floats of gate and up
  int shared_hidden = 0;     // 0: nothing beside the experts
  bool shared_gate = false;  // what is beside them is multiplied with a sigmoid for each token

  bool operator==(const MoeSpec&) const = default;
};

/// A feed-forward part with routed experts beside it. Experts and router read the hidden state through norms of their
/// own, and there is one behind each of the two parts; weights of experts are multiplied with a number of each.
struct FfnWithExpertsSpec {
  FfnSpec ffn;
  MoeSpec experts;

  bool operator==(const FfnWithExpertsSpec&) const = default;
};

/// A vector for each token and each layer, from a second embedding and a projection of the first: a last part of every
/// layer adds what a gate lets through of it.
struct LayerInputSpec {
  int vocab = 0;
  int dim = 0;  // of one layer
  Activation activation = Activation::gelu_tanh;

  bool operator==(const LayerInputSpec&) const = default;
};

/// The norms around a layer's parts, by the names of their tensors in its files; no name, no norm.
struct LayerNorms {
  std::string before_mixer = "input_layernorm";
  std::string after_mixer;                              // before the residual is added
  std::string before_ffn = "post_attention_layernorm";  // so called by Llama
  std::string after_ffn;
  bool of_sums = false;  // those behind a part are of the sum: x = norm(x + part(x))

  bool operator==(const LayerNorms&) const = default;
};

struct LayerSpec {
  Mixer mixer;
  std::variant<FfnSpec, MoeSpec, PlainFfnSpec, FfnWithExpertsSpec> ffn;
  LayerNorms norms;
  bool parallel = false;         // the ffn reads what the mixer reads; norms.before_ffn is not used
  float residual_factor = 1.0F;  // on what mixer and ffn add
  bool scaled = false;           // what leaves the layer is multiplied with a number of the file, "layer_scalar"

  bool operator==(const LayerSpec&) const = default;
};

enum class NormKind : uint8_t {
  rms,
  layer,  // takes the mean off
};
struct NormSpec {
  NormKind kind = NormKind::rms;
  bool bias = false;
  float eps = 0.0F;
  float offset = 0.0F;  // added to every weight at load (1 for Gemma safetensors)
};

/// What the files of a family call a tensor that this program knows by another name. A rule applies where `theirs`
/// stands at the beginning of a name or behind a dot.
struct NameRule {
  std::string theirs, ours;
  bool transposed = false;  // the matrix is stored [in, out]
};

struct DecoderSpec {
  std::string architecture;  // the checkpoint's own name for it
  int vocab = 0;
  int dim = 0;
  int max_positions = 0;  // context length it was made for
  NormSpec norm;
  float embedding_scale = 1.0F;
  int learned_positions = 0;  // rows of a table that is added to the embedding; 0: none
  int first_position = 0;     // rows of the stored table before these
  int text_types = 0;         // rows of another such table, by which text of a pair a token belongs to
  bool embedding_norm = false;
  std::optional<LayerInputSpec> layer_input;
  std::string final_norm = "model.norm";  // "": none
  float logit_scale = 1.0F;
  float logit_softcap = 0.0F;
  bool tied = false;                 // the output matrix is the embedding
  bool output_bias = false;          // of an output matrix of its own
  std::optional<PoolerSpec> pooler;  // a model that answers with a vector or scores: it has no output matrix
  std::vector<LayerSpec> layers;
  std::vector<NameRule> names;
};

/// Whether a token depends on earlier ones only, so that a sequence may come in parts and grow.
bool is_causal(const DecoderSpec& spec);
/// Some layers keep a state of each row instead of keys and values.
bool is_recurrent(const DecoderSpec& spec);

/// The spec as text, one line for each group of equal layers; for people, tests and bug reports.
std::string describe(const DecoderSpec& spec);

/// Layers whose KV pages live equally long share a page table.
struct KvGroup {
  int window = 0;  // 0: full
  std::vector<int> layers;
  int64_t layer_bytes = 0;  // of one layer in one page
};
/// How a model's KV cache is cut: groups of equally many layers of one kind (so that every page has the same size and
/// one pool serves all), each with its own page table. A group has as many layers as the smallest kind, or fewer when
/// that would leave more than 4 % of the places empty. In a model that is not causal keys and values are of one layer
/// at a time: all layers have the same place.
struct KvLayout {
  int page_tokens = 16;
  int64_t page_bytes = 0;
  std::vector<KvGroup> groups;
  /// Group of each layer and its place in a page; of a layer with a recurrent state the group is -1, and the place is
  /// one in the row's state.
  struct Place {
    int group = 0;
    int64_t offset = 0;
  };
  std::vector<Place> layers;
  int64_t state_bytes = 0;  // what all recurrent layers keep of a row

  /// Bytes of a page that lie together in the pool: where all layers are of one size and pages hold nothing else, one
  /// layer's, so that what a layer reads in a step is dense; else the whole page.
  int64_t extent_bytes() const;
  /// Pages that a snapshot of a row's state takes; 0 without recurrent layers.
  int state_pages() const {
    return state_bytes == 0 ? 0 : static_cast<int>((state_bytes + page_bytes - 1) / page_bytes);
  }
  /// Tokens from one regular snapshot of a long prompt to the next: the snapshots take about as much memory as the keys
  /// and values between them.
  int snapshot_tokens() const;
};
KvLayout kv_layout(const DecoderSpec& spec, int kv_element_bytes);

}  // namespace quern
