// HeadStep: what some families do to queries and keys between their projection and rope.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "model/block.h"
#include "model/spec.h"
#include "model/step.h"
#include "model/weights.h"
#include "tensor/tensor.h"

namespace quern {

/// Projected heads of a step's tokens: [tokens, heads * head_dim] activations each.
struct Heads {
  Tensor q, k, v;
};

class HeadStep {
 public:
  virtual ~HeadStep() = default;
  /// In place.
  virtual void run(Step& step, const Heads& heads) const = 0;
};
using HeadSteps = std::vector<std::unique_ptr<HeadStep>>;

/// Those that the spec asks for, in order.
Result<HeadSteps> load_head_steps(const AttentionSpec& spec, const BlockPlace& place, Weights& weights);

}  // namespace quern
