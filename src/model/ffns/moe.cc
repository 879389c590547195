// Routed experts: every token goes through a few of many small gated feed-forward parts, and perhaps through one more
// that all share.
#include "ops/moe.h"

#include "model/block.h"
#include "model/ffns/expert_files.h"
#include "model/ffns/experts.h"
#include "ops/elementwise.h"
#include "ops/gated.h"
#include "ops/linear.h"

namespace quern {
namespace {

class Moe final : public Block {
 public:
  explicit Moe(const MoeSpec& spec) : spec_(spec) {}

  Status load(const BlockPlace& place, Weights& weights) {
    const ExpertFiles files(spec_, place.dim, place.prefix, weights);
    ASSIGN_OR_RETURN(router_, files.router());
    if (spec_.choice_bias) {
      ASSIGN_OR_RETURN(choice_bias_, files.choice_bias());
    }
    TRY(experts_.load(spec_, files));
    if (spec_.shared_hidden > 0) {
      ASSIGN_OR_RETURN(shared_gate_up_, files.shared_gate_up());
      ASSIGN_OR_RETURN(shared_down_, files.shared_down());
    }
    if (spec_.shared_gate) {
      ASSIGN_OR_RETURN(shared_gate_, files.shared_gate());
    }
    return {};
  }

  void forward(Step& step, Tensor x, Tensor y, bool accumulate) const override {
    Exec& exec = step.exec;
    const Tensor scores = exec.arena.tensor(Dtype::f32, x.dims[0], spec_.experts);
    linear_into(exec, scores, x, router_, false);
    const Routing routing = route(exec, scores, spec_.router, {.bias = choice_bias_});
    experts_.run(exec, x, routing, y, accumulate);
    if (spec_.shared_hidden > 0) add_shared(exec, x, y);
  }

 private:
  void add_shared(Exec& exec, Tensor x, Tensor y) const {
    const Tensor hidden = gated(exec, linear(exec, x, shared_gate_up_), spec_.activation);
    if (spec_.shared_gate) {
      const Tensor gates = exec.arena.tensor(Dtype::f32, x.dims[0], 1);
      linear_into(exec, gates, x, shared_gate_, false);
      gate_rows(exec, hidden, gates);
    }
    linear_into(exec, y, hidden, shared_down_, true);
  }

  MoeSpec spec_;
  Matrix router_;
  Tensor choice_bias_;  // [experts], or none
  Experts experts_;
  Matrix shared_gate_up_;
  Matrix shared_down_;
  Matrix shared_gate_;
};

}  // namespace

Result<std::unique_ptr<Block>> make_block(const MoeSpec& spec, const BlockPlace& place, Weights& weights) {
  auto block = std::make_unique<Moe>(spec);
  TRY(block->load(place, weights));
  return std::unique_ptr<Block>(std::move(block));
}

}  // namespace quern
