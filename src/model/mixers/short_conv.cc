// Gated short convolution: out(c * conv(b * x)) with b, c and x made from the hidden state.
#include "ops/short_conv.h"

#include "model/block.h"
#include "ops/linear.h"
#include "ops/modulate.h"

namespace quern {
namespace {

class ShortConv final : public Block {
 public:
  explicit ShortConv(const BlockPlace& place) : dim_(place.dim), layer_(place.layer) {}

  Status load(const ShortConvSpec& spec, const BlockPlace& place, Weights& weights) {
    const std::string prefix = place.prefix + "conv.";
    ASSIGN_OR_RETURN(inputs_, weights.matrix({{prefix + "in_proj", 3 * dim_}}, dim_, spec.bias));
    ASSIGN_OR_RETURN(conv_.taps, weights.transposed(prefix + "conv.weight", dim_, spec.taps));
    if (spec.bias) {
      ASSIGN_OR_RETURN(conv_.bias, weights.vector(prefix + "conv.bias", dim_, 0));
    }
    ASSIGN_OR_RETURN(output_, weights.matrix({{prefix + "out_proj", dim_}}, dim_, spec.bias));
    return {};
  }

  void forward(Step& step, Tensor x, Tensor y, bool accumulate) const override {
    Exec& exec = step.exec;
    const Tensor bcx = linear(exec, x, inputs_);
    const Tensor values = bcx.columns(2 * dim_, dim_);
    modulate(exec, values, bcx.columns(0, dim_), Modulation::identity);
    const Tensor mixed = short_conv(exec, values, conv_, step.kv.state(layer_), step.inputs.segments);
    modulate(exec, mixed, bcx.columns(dim_, dim_), Modulation::identity);
    linear_into(exec, y, mixed, output_, accumulate);
  }

 private:
  int dim_;
  int layer_;
  Matrix inputs_;  // b | c | x
  Matrix output_;
  ShortConvWeights conv_;
};

}  // namespace

Result<std::unique_ptr<Block>> make_block(const ShortConvSpec& spec, const BlockPlace& place, Weights& weights) {
  auto block = std::make_unique<ShortConv>(place);
  TRY(block->load(spec, place, weights));
  return std::unique_ptr<Block>(std::move(block));
}

}  // namespace quern
