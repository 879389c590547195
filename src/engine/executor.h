// Executor: runs step plans, in order. The model's is in executor.cc; tests have one without a model.
#pragma once

#include <functional>

#include "engine/plan.h"

namespace quern {

class Executor {
 public:
  virtual ~Executor() = default;

  /// Told once, before the first plan: where results go. Called from the executor's thread, in the order of the plans.
  virtual void on_result(std::function<void(StepResult)> deliver) = 0;
  /// Queues a plan; returns at once.
  virtual void submit(StepPlan plan) = 0;
  /// Masks of a queued or running step.
  virtual void provide(StepMasks masks) = 0;
};

}  // namespace quern
