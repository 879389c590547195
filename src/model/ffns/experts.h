// Experts: the gated feed-forward parts that routed tokens go through.
#pragma once

#include <vector>

#include "base/result.h"
#include "model/ffns/expert_files.h"
#include "model/spec.h"
#include "ops/moe.h"

namespace quern {

class Experts {
 public:
  Status load(const MoeSpec& spec, const ExpertFiles& files);

  /// y = the weighted sum of each token's experts, or y += that.   x: [tokens, dim] activations   y: [tokens, dim] f32
  void run(Exec& exec, Tensor x, const Routing& routing, Tensor y, bool accumulate) const;

 private:
  Activation activation_ = Activation::silu;
  std::vector<Matrix> gate_up_;  // one for each expert
  std::vector<Matrix> down_;
};

}  // namespace quern
