// Gated feed-forward: down(activation(gate(x)) * up(x)).
#include "model/block.h"
#include "ops/gated_linear.h"
#include "ops/linear.h"

namespace quern {
namespace {

class GatedFfn final : public Block {
 public:
  GatedFfn(Activation activation, Matrix gate_up, Matrix down)
      : activation_(activation), gate_up_(gate_up), down_(down) {}

  void forward(Step& step, Tensor x, Tensor y, bool accumulate) const override {
    Exec& exec = step.exec;
    gated_linear_into(exec, y, linear(exec, x, gate_up_), activation_, down_, accumulate);
  }

 private:
  Activation activation_;
  Matrix gate_up_;
  Matrix down_;
};

}  // namespace

Result<std::unique_ptr<Block>> make_block(const FfnSpec& spec, const BlockPlace& place, Weights& weights) {
  const std::string prefix = place.prefix + "mlp.";
  ASSIGN_OR_RETURN(
      const Matrix gate_up,
      weights.fused(prefix + "gate_up_proj", {{prefix + "gate_proj", spec.hidden}, {prefix + "up_proj", spec.hidden}},
                    place.dim, spec.bias));
  ASSIGN_OR_RETURN(const Matrix down, weights.matrix({{prefix + "down_proj", place.dim}}, spec.hidden, spec.bias));
  return std::unique_ptr<Block>(std::make_unique<GatedFfn>(spec.activation, gate_up, down));
}

}  // namespace quern
