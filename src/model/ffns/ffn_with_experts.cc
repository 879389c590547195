// A gated feed-forward part and routed experts side by side: norm(ffn(x)) + norm(experts(norm(hidden))), where a router
// with a norm of its own reads the hidden state too.
#include <cmath>

#include "model/block.h"
#include "model/ffns/expert_files.h"
#include "model/ffns/experts.h"
#include "model/norm.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/moe.h"
#include "ops/rms_norm.h"

namespace quern {
namespace {

class FfnWithExperts final : public Block {
 public:
  FfnWithExperts(const FfnWithExpertsSpec& spec, const BlockPlace& place)
      : rule_(spec.experts.router), eps_(place.norm.eps) {}

  Status load(const FfnWithExpertsSpec& spec, const BlockPlace& place, Weights& weights) {
    const auto norm = [&](const char* name) { return Norm::load(place.prefix + name, place.dim, place.norm, weights); };
    ASSIGN_OR_RETURN(ffn_, make_block(spec.ffn, place, weights));
    ASSIGN_OR_RETURN(after_ffn_, norm("post_feedforward_layernorm_1"));
    ASSIGN_OR_RETURN(before_experts_, norm("pre_feedforward_layernorm_2"));
    ASSIGN_OR_RETURN(after_experts_, norm("post_feedforward_layernorm_2"));
    const ExpertFiles files(spec.experts, place.dim, place.prefix, weights);
    ASSIGN_OR_RETURN(router_, files.router());
    ASSIGN_OR_RETURN(router_norm_, weights.vector(place.prefix + "router.scale", place.dim, 0.0F));
    ASSIGN_OR_RETURN(factors_, weights.vector(place.prefix + "router.per_expert_scale", spec.experts.experts, 0.0F));
    return experts_.load(spec.experts, files);
  }

  void forward(Step& step, Tensor x, Tensor y, bool accumulate) const override {
    Exec& exec = step.exec;
    const auto like_y = [&] { return exec.arena.tensor(Dtype::f32, y.dims[0], y.dims[1]); };
    const Tensor sum = accumulate ? like_y() : y;
    ffn_->forward(step, x, sum, false);
    after_ffn_.apply(exec, sum);
    const Tensor of_experts = like_y();
    experts_.run(exec, before_experts_.of(exec, step.hidden), routing(exec, step.hidden), of_experts, false);
    after_experts_.apply(exec, of_experts);
    add(exec, sum, of_experts);
    if (accumulate) add(exec, y, sum);
  }

 private:
  Routing routing(Exec& exec, Tensor hidden) const {
    const Tensor logits = exec.arena.tensor(Dtype::f32, hidden.dims[0], router_.rows);
    linear_into(exec, logits, rms_norm(exec, hidden, router_norm_, eps_), router_, false);
    scale(exec, logits, 1.0F / std::sqrt(static_cast<float>(router_.cols)));
    return route(exec, logits, rule_, {.factors = factors_});
  }

  RouterRule rule_;
  float eps_;
  std::unique_ptr<Block> ffn_;
  Norm after_ffn_;
  Norm before_experts_;
  Norm after_experts_;
  Matrix router_;
  Tensor router_norm_;  // [dim]
  Tensor factors_;      // [experts]
  Experts experts_;
};

}  // namespace

Result<std::unique_ptr<Block>> make_block(const FfnWithExpertsSpec& spec, const BlockPlace& place, Weights& weights) {
  auto block = std::make_unique<FfnWithExperts>(spec, place);
  TRY(block->load(spec, place, weights));
  return std::unique_ptr<Block>(std::move(block));
}

}  // namespace quern
