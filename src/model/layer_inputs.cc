#include "model/layer_inputs.h"

#include <cmath>

#include "ops/elementwise.h"
#include "ops/rms_norm.h"
#include "ops/rows.h"

namespace quern {

Result<LayerInputs> LayerInputs::load(const DecoderSpec& spec, Weights& weights) {
  LayerInputs inputs;
  inputs.dim_ = spec.layer_input->dim;
  inputs.eps_ = spec.norm.eps;
  const int all = inputs.dim_ * static_cast<int>(spec.layers.size());
  ASSIGN_OR_RETURN(inputs.table_, weights.weight("model.embed_tokens_per_layer.weight", spec.layer_input->vocab, all));
  ASSIGN_OR_RETURN(inputs.projection_, weights.matrix({{"model.per_layer_model_projection", all}}, spec.dim, false));
  ASSIGN_OR_RETURN(inputs.norm_,
                   weights.vector("model.per_layer_projection_norm.weight", inputs.dim_, spec.norm.offset));
  return inputs;
}

Tensor LayerInputs::of(Step& step, Tensor x) const {
  Exec& exec = step.exec;
  const int tokens = step.shape.tokens;
  const int layers = projection_.rows / dim_;
  const Tensor sums = exec.arena.tensor(Dtype::f32, tokens, projection_.rows);
  {
    const Arena::Scope scope(exec.arena);
    linear_into(exec, sums, to_activations(exec, x), projection_, false);
    scale(exec, sums, 1.0F / std::sqrt(static_cast<float>(projection_.cols)));
    const Tensor vectors = Tensor::dense(sums.data, Dtype::f32, tokens * layers, dim_);
    rms_norm_into(exec, vectors, vectors, norm_, eps_);
    add(exec, sums, embed(exec, table_, step.inputs.tokens, std::sqrt(static_cast<float>(dim_))));
    scale(exec, sums, std::sqrt(0.5F));
  }
  return to_activations(exec, sums);
}

}  // namespace quern
