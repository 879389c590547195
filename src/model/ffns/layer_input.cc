// The part of a layer that adds what it has of each token: up(activation(gate(x)) * input).
#include "model/block.h"
#include "ops/activate.h"
#include "ops/linear.h"
#include "ops/modulate.h"

namespace quern {
namespace {

class LayerInput final : public Block {
 public:
  LayerInput(const LayerInputSpec& spec, int layer, Matrix gate, Matrix up)
      : activation_(spec.activation), first_(layer * spec.dim), dim_(spec.dim), gate_(gate), up_(up) {}

  void forward(Step& step, Tensor x, Tensor y, bool accumulate) const override {
    Exec& exec = step.exec;
    const Tensor gate = linear(exec, x, gate_);
    activate(exec, gate, activation_);
    modulate(exec, gate, step.layer_inputs.columns(first_, dim_), Modulation::identity);
    linear_into(exec, y, gate, up_, accumulate);
  }

 private:
  Activation activation_;
  int first_;  // column of this layer
  int dim_;
  Matrix gate_;
  Matrix up_;
};

}  // namespace

Result<std::unique_ptr<Block>> make_block(const LayerInputSpec& spec, const BlockPlace& place, Weights& weights) {
  ASSIGN_OR_RETURN(const Matrix gate,
                   weights.matrix({{place.prefix + "per_layer_input_gate", spec.dim}}, place.dim, false));
  ASSIGN_OR_RETURN(const Matrix up,
                   weights.matrix({{place.prefix + "per_layer_projection", place.dim}}, spec.dim, false));
  return std::unique_ptr<Block>(std::make_unique<LayerInput>(spec, place.layer, gate, up));
}

}  // namespace quern
