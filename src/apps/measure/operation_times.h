// OperationTimes: what every operation of a step took, each alone, beside what it had to read and compute.
// Thread: executor while a step runs, main between steps.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/measure/machine_limits.h"
#include "ops/cost.h"
#include "tensor/device.h"

namespace quern {

/// New tokens of one sequence in a step: `count` of them from position `first` on.
struct SegmentPlace {
  int first = 0;
  int count = 0;

  /// Tokens that any of them sees, and pairs of one of them and a token it sees. `window` 0: all earlier tokens.
  double seen(int window) const;
  double pairs(int window) const;
};

/// All operations of one name in a step; a matrix product's name says which matrix.
struct OperationTime {
  std::string name;
  int calls = 0;
  double seconds = 0.0;
  double bytes = 0.0;
  double flops = 0.0;
  double least_seconds = 0.0;  // that the limits allow for them
};

struct StepOperations {
  std::vector<OperationTime> operations;  // the longest first
  double seconds = 0.0;                   // of all of them
  double between_seconds = 0.0;           // after one and before the next
  double least_seconds = 0.0;
};

class OperationTimes final : public CostTrace {
 public:
  explicit OperationTimes(Device& device);

  void begin(const char* kernel) override;
  void end(const char* kernel) override;
  void cost(const Cost& cost) override { cost_ = cost; }

  /// What ran since the last call, or is on its way, in a step of these segments.
  StepOperations take(std::span<const SegmentPlace> segments, const MachineLimits& limits);

 private:
  struct Call {
    const char* kernel = nullptr;
    Cost cost;
  };

  const std::unique_ptr<Laps> laps_;
  const double eight_bit_rate_;  // of products of 8-bit floats, in parts of the limit
  Cost cost_;
  std::vector<Call> calls_;
};

}  // namespace quern
