// Routed experts: every token goes through a few of many small gated feed-forward parts.
#include "ops/moe.h"

#include <array>
#include <string>
#include <vector>

#include "model/block.h"
#include "ops/linear.h"

namespace quern {
namespace {

class Moe final : public Block {
 public:
  explicit Moe(const MoeSpec& spec) : spec_(spec) {}

  Status load(const BlockPlace& place, Weights& weights) {
    const std::string prefix = place.prefix + "mlp.";
    ASSIGN_OR_RETURN(router_, weights.matrix({{prefix + "gate", spec_.experts}}, place.dim, false));
    for (int expert = 0; expert < spec_.experts; ++expert) {
      ASSIGN_OR_RETURN(Matrix gate_up, load_gate_up(prefix + "experts.", expert, place.dim, weights));
      ASSIGN_OR_RETURN(Matrix down, load_down(prefix + "experts.", expert, place.dim, weights));
      gate_up_.push_back(gate_up);
      down_.push_back(down);
    }
    return {};
  }

  void forward(Step& step, Tensor x, Tensor y, bool accumulate) const override {
    Exec& exec = step.exec;
    const Tensor scores = exec.arena.tensor(Dtype::f32, x.dims[0], spec_.experts);
    linear_into(exec, scores, x, router_, false);
    const Routing routing = route(exec, scores, spec_.used, spec_.renormalize);
    const Tensor hidden = expert_gated(exec, x, gate_up_.data(), routing, spec_.activation, down_.data());
    combine(exec, y, expert_linear(exec, hidden, down_.data(), routing), routing, accumulate);
  }

 private:
  /// Files keep experts as linear layers of their own ("experts.3.gate_proj.weight"), as stacks of one kind
  /// ("experts.gate_proj.weight": GGUF), or as stacks with gate above up ("experts.gate_up_proj": new files).
  Result<Matrix> load_gate_up(const std::string& prefix, int expert, int dim, Weights& weights) const {
    const std::string own = prefix + std::to_string(expert) + ".";
    if (weights.has(own + "gate_proj.weight")) {
      return weights.matrix({{own + "gate_proj", spec_.hidden}, {own + "up_proj", spec_.hidden}}, dim, false);
    }
    Matrix matrix;
    matrix.count = 2;
    matrix.rows = 2 * spec_.hidden;
    matrix.cols = dim;
    if (weights.has(prefix + "gate_up_proj")) {
      const std::array<int64_t, 3> shape{spec_.experts, 2 * spec_.hidden, dim};
      for (int part = 0; part < 2; ++part) {
        ASSIGN_OR_RETURN(matrix.parts[part],
                         weights.stacked(prefix + "gate_up_proj", expert, shape, part * spec_.hidden, spec_.hidden));
      }
      matrix.scale = weights.scales({matrix.parts, 2});
      return matrix;
    }
    const std::array<int64_t, 3> shape{spec_.experts, spec_.hidden, dim};
    ASSIGN_OR_RETURN(matrix.parts[0], weights.stacked(prefix + "gate_proj.weight", expert, shape, 0, spec_.hidden));
    ASSIGN_OR_RETURN(matrix.parts[1], weights.stacked(prefix + "up_proj.weight", expert, shape, 0, spec_.hidden));
    matrix.scale = weights.scales({matrix.parts, 2});
    return matrix;
  }

  Result<Matrix> load_down(const std::string& prefix, int expert, int dim, Weights& weights) const {
    const std::string own = prefix + std::to_string(expert) + ".down_proj";
    if (weights.has(own + ".weight")) return weights.matrix({{own, dim}}, spec_.hidden, false);
    Matrix matrix;
    matrix.count = 1;
    matrix.rows = dim;
    matrix.cols = spec_.hidden;
    const std::array<int64_t, 3> shape{spec_.experts, dim, spec_.hidden};
    const std::string stack = prefix + (weights.has(prefix + "down_proj") ? "down_proj" : "down_proj.weight");
    ASSIGN_OR_RETURN(matrix.parts[0], weights.stacked(stack, expert, shape, 0, dim));
    matrix.scale = weights.scales({matrix.parts, 1});
    return matrix;
  }

  MoeSpec spec_;
  Matrix router_;
  std::vector<Matrix> gate_up_;  // one for each expert
  std::vector<Matrix> down_;
};

}  // namespace

Result<std::unique_ptr<Block>> make_block(const MoeSpec& spec, const BlockPlace& place, Weights& weights) {
  auto block = std::make_unique<Moe>(spec);
  TRY(block->load(place, weights));
  return std::unique_ptr<Block>(std::move(block));
}

}  // namespace quern
