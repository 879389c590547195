// The plan log: what crosses the border between engine and executor as text, one JSON document a line, so that a run
// can be repeated without its requests (apps/replay). Any thread.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"
#include "engine/plan.h"

namespace quern {

using PlanLogEntry = std::variant<StepPlan, StepMasks, StepResult>;

/// One line without its end. Of a request it keeps what an executor reads: prompt, sampling, limits, output, adapter,
/// and whether it is constrained (its masks are entries of their own). Of a result it keeps tokens, vectors and errors.
std::string plan_log_line(const StepPlan& plan);
std::string plan_log_line(const StepMasks& masks);
std::string plan_log_line(const StepResult& result);

/// A constrained request gets a mask object that computes nothing. Refuses what no engine writes: rows and pages below
/// 0, slices without tokens, ...
Result<PlanLogEntry> parse_plan_log_line(std::string_view line);

}  // namespace quern
