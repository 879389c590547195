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

struct AttentionSpec {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  float scale = 0.0F;
  float softcap = 0.0F;
  int window = 0;  // 0: full attention
  bool qkv_bias = false;
  bool output_bias = false;
  bool qk_norm = false;      // RMS over head_dim with one weight, before rope
  bool causal = true;        // false: later tokens are seen too, with a window those less than `window` away
  bool sinks = false;        // a score for each head that takes part in the softmax and has no value
  bool output_gate = false;  // a sigmoid on each output, from rows that stand behind each head's query
  RopeSpec rope;

  bool operator==(const AttentionSpec&) const = default;
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

using Mixer = std::variant<AttentionSpec, MlaSpec, DeltaNetSpec, ShortConvSpec>;
/// The rope of a mixer; null where there are no positions.
const RopeSpec* rope_of(const Mixer& mixer);

struct FfnSpec {
  int hidden = 0;
  Activation activation = Activation::silu;
  bool bias = false;

  bool operator==(const FfnSpec&) const = default;
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

struct LayerSpec {
  Mixer mixer;
  std::variant<FfnSpec, MoeSpec> ffn;
  bool post_norms = false;  // norms after mixer and ffn too, before the residual is added

  bool operator==(const LayerSpec&) const = default;
};

struct DecoderSpec {
  std::string architecture;  // the checkpoint's own name for it
  int vocab = 0;
  int dim = 0;
  int max_positions = 0;  // context length it was made for
  float norm_eps = 0.0F;
  float norm_offset = 0.0F;  // added to every norm weight at load (1 for Gemma safetensors)
  float embedding_scale = 1.0F;
  float logit_softcap = 0.0F;
  bool tied = false;                 // the output matrix is the embedding
  std::optional<PoolerSpec> pooler;  // a model that answers with a vector or scores: it has no output matrix
  std::vector<LayerSpec> layers;
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
