// LayerInputs: what a model with a vector of each token for every layer computes of them in front of the layers.
#pragma once

#include "base/result.h"
#include "model/spec.h"
#include "model/step.h"
#include "model/weights.h"
#include "ops/linear.h"
#include "tensor/tensor.h"

namespace quern {

class LayerInputs {
 public:
  static Result<LayerInputs> load(const DecoderSpec& spec, Weights& weights);

  /// [tokens, layers * dim of one] activations, of the step's tokens and their embedding `x`, [tokens, dim] f32.
  Tensor of(Step& step, Tensor x) const;

 private:
  int dim_ = 0;  // of one layer
  float eps_ = 0.0F;
  Weight table_;
  Matrix projection_;
  Tensor norm_;  // [dim]
};

}  // namespace quern
