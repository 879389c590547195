// Decoder: a model that was built from its spec: tokens in, hidden states and logits out. Thread: executor.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/block.h"
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
  /// x += post_norm(block(norm(x))); without a post norm the block adds to x itself.
  struct Part {
    Tensor norm;
    std::unique_ptr<Block> block;
    Tensor post_norm;
  };
  struct Rope {
    Tensor inverse_frequencies;
    float factor = 1.0F;
  };

  Decoder() = default;
  Status load_layer(const DecoderSpec& spec, int index, int rope, Weights& weights);
  Result<Part> load_part(const DecoderSpec& spec, const std::string& norm, const std::string& post_norm,
                         Result<std::unique_ptr<Block>> block, Weights& weights);
  void run(Step& step, const Part& part, Tensor x) const;
  int64_t measure(const Exec& like, const StepShape& shape, const KvCache& kv) const;

  int dim_ = 0;
  float norm_eps_ = 0.0F;
  float embedding_scale_ = 1.0F;
  float logit_softcap_ = 0.0F;
  KvLayout layout_;
  Weight embedding_;
  std::vector<Rope> ropes_;
  std::vector<Part> parts_;  // two for each layer: mixer, ffn
  Tensor norm_;
  Matrix output_;
};

}  // namespace quern
