// Profile of a step: its time as it is served, and the time of every operation in it. Steps of exact shapes are put
// together by hand and given to the executor. Thread: main.
#pragma once

#include <string_view>
#include <vector>

#include "apps/instance.h"
#include "apps/measure/operation_times.h"
#include "base/result.h"

namespace quern {

/// What a step computes: `rows` sequences decode behind `context` tokens each, and `prompts` begin.
struct StepSize {
  int rows = 0;
  int context = 0;
  int prompts = 0;
  int prompt_tokens = 0;

  int sequences() const { return rows + prompts; }
  int tokens() const { return rows + prompts * prompt_tokens; }
  /// As parse_steps() reads it.
  std::string text() const;
};

/// "256@1024,8x1024,256@1024+8x1024": 256 rows behind 1,024 tokens, 8 prompts of 1,024 tokens, and both in one step.
Result<std::vector<StepSize>> parse_steps(std::string_view list);

struct StepProfile {
  StepOperations operations;
  double seconds = 0.0;  // of a step among its like, unwatched
};

/// `instance` has no executor meanwhile. Steps of each size run unwatched for at least `seconds`, in which they are
/// captured. An error says what the steps do not fit into.
Result<std::vector<StepProfile>> profile_steps(Instance& instance, const std::vector<StepSize>& steps,
                                               const MachineLimits& limits, double seconds);

}  // namespace quern
