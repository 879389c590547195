// Feed-forward without a gate: down(activation(up(x))).
#include "model/block.h"
#include "ops/activate.h"
#include "ops/linear.h"

namespace quern {
namespace {

class PlainFfn final : public Block {
 public:
  PlainFfn(Activation activation, Matrix up, Matrix down) : activation_(activation), up_(up), down_(down) {}

  void forward(Step& step, Tensor x, Tensor y, bool accumulate) const override {
    Exec& exec = step.exec;
    const Tensor hidden = linear(exec, x, up_);
    activate(exec, hidden, activation_);
    linear_into(exec, y, hidden, down_, accumulate);
  }

 private:
  Activation activation_;
  Matrix up_;
  Matrix down_;
};

}  // namespace

Result<std::unique_ptr<Block>> make_block(const PlainFfnSpec& spec, const BlockPlace& place, Weights& weights) {
  const std::string prefix = place.prefix + "mlp.";
  ASSIGN_OR_RETURN(const Matrix up, weights.matrix({{prefix + "up_proj", spec.hidden}}, place.dim, spec.bias));
  ASSIGN_OR_RETURN(const Matrix down, weights.matrix({{prefix + "down_proj", place.dim}}, spec.hidden, spec.bias));
  return std::unique_ptr<Block>(std::make_unique<PlainFfn>(spec.activation, up, down));
}

}  // namespace quern
