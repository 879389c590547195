// Decoder: a model that was built from its spec: tokens in, hidden states and logits out. Thread: executor.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/block.h"
#include "model/layer_inputs.h"
#include "model/norm.h"
#include "model/spec.h"
#include "model/step.h"
#include "model/weights.h"
#include "tensor/queue.h"

namespace quern {

class Decoder {
 public:
  static Result<Decoder> build(const DecoderSpec& spec, Weights& weights);

  /// Runs the step's tokens through all layers and keeps their keys and values. Their hidden states: [tokens, dim] f32.
  Tensor run(Step& step) const;
  /// The same; the normalised hidden states of the tokens that step.inputs.outputs names: [outputs, dim].
  Tensor forward(Step& step) const { return outputs(step, run(step)); }
  Tensor outputs(Step& step, Tensor hidden) const;
  /// [outputs, vocab] f32   hidden: [outputs, dim]
  Tensor logits(Step& step, Tensor hidden) const;
  /// Logits of neighbouring tokens whose hidden states run() gave: [rows, vocab] f32   hidden: [rows, dim] f32
  Tensor logits_of_hidden(Step& step, Tensor hidden) const;

  /// Bytes that forward and logits take of the arena for steps of at most these sizes and sequences of at most
  /// `max_positions` tokens, measured by a run that computes nothing: the same code that runs later.
  int64_t activation_bytes(Queue queue, Dtype activations, const StepShape& most, int max_positions) const;

 private:
  /// x += factor * post_norm(sum of blocks(norm(x))); with nothing to do behind them the blocks add to x themselves.
  struct Part {
    Norm norm;
    std::vector<std::unique_ptr<Block>> blocks;
    Norm post_norm;
    float factor = 1.0F;
    Tensor scalar;             // [1] what x is multiplied with in the end, or none
    bool norm_of_sum = false;  // x = post_norm(x + block(x))
  };
  struct Rope {
    Tensor inverse_frequencies;
    float factor = 1.0F;
  };

  Decoder() = default;
  Status load_layer(const DecoderSpec& spec, int index, int rope, Weights& weights);
  Status load_parts(const LayerSpec& layer, const BlockPlace& place, Weights& weights);
  Status load_layer_input(const LayerInputSpec& spec, const BlockPlace& place, Weights& weights);
  Status load_tables(const DecoderSpec& spec, Weights& weights);
  /// A part without blocks yet. The names are those of its norms, if it has them.
  static Result<Part> load_part(const BlockPlace& place, const std::string& norm, const std::string& post_norm,
                                Weights& weights);
  Tensor embed_tokens(const Step& step) const;
  void run(Step& step, const Part& part, Tensor x) const;
  void add_part(Step& step, const Part& part, Tensor x) const;
  int64_t measure(const Exec& like, const StepShape& shape, const KvCache& kv) const;

  int dim_ = 0;
  float embedding_scale_ = 1.0F;
  float logit_scale_ = 1.0F;
  float logit_softcap_ = 0.0F;
  KvLayout layout_;
  Weight embedding_;
  Weight positions_;  // learned; no rows: none
  Weight types_;      // of texts; no rows: none
  Norm embedding_norm_;
  std::optional<LayerInputs> layer_inputs_;
  std::vector<Rope> ropes_;
  std::vector<Part> parts_;  // of each layer: mixer, ffn, or one of both; then its input
  Norm norm_;
  Matrix output_;
};

}  // namespace quern
