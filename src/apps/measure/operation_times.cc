#include "apps/measure/operation_times.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <utility>

namespace quern {
namespace {

std::string name_of(const char* kernel, const Cost& cost) {
  return cost.rows > 0 ? fmt::format("{} {}x{}", kernel, cost.rows, cost.cols) : kernel;
}

}  // namespace

double SegmentPlace::seen(int window) const {
  return first + count - (window > 0 ? std::max(0, first - window + 1) : 0);
}

double SegmentPlace::pairs(int window) const {
  const auto sum_to = [&](double positions) {  // of the tokens that each of the first `positions` sees
    const double rising = window > 0 ? std::min<double>(positions, window) : positions;
    return rising * (rising + 1) / 2 + (positions - rising) * window;
  };
  return sum_to(first + count) - sum_to(first);
}

OperationTimes::OperationTimes(Device& device)
    : laps_(device.make_laps()), eight_bit_rate_(device.kind() == DeviceKind::cuda ? fp8_rate : 1.0) {}

void OperationTimes::begin(const char* kernel) {
  calls_.push_back({kernel, std::exchange(cost_, {})});
  laps_->mark();
}

void OperationTimes::end(const char* /*kernel*/) { laps_->mark(); }

StepOperations OperationTimes::take(std::span<const SegmentPlace> segments, const MachineLimits& limits) {
  const std::vector<double> laps = laps_->seconds();
  std::map<std::string, OperationTime> by_name;
  StepOperations step;
  for (size_t i = 0; i < calls_.size(); ++i) {
    const Cost& cost = calls_[i].cost;
    double bytes = cost.bytes;
    double flops = cost.flops;
    for (const SegmentPlace& segment : segments) {
      bytes += cost.key_bytes * segment.seen(cost.window);
      flops += cost.pair_flops * segment.pairs(cost.window);
    }
    const double rate = (cost.eight_bit ? eight_bit_rate_ : 1.0) * limits.flops_per_second;
    OperationTime& entry = by_name[name_of(calls_[i].kernel, cost)];
    ++entry.calls;
    entry.seconds += laps[2 * i];
    entry.bytes += bytes;
    entry.flops += flops;
    entry.least_seconds += std::max(bytes / limits.read_bytes_per_second, flops / rate);
    if (2 * i + 1 < laps.size()) step.between_seconds += laps[2 * i + 1];
  }
  calls_.clear();
  for (auto& [name, entry] : by_name) {
    entry.name = name;
    step.seconds += entry.seconds;
    step.least_seconds += entry.least_seconds;
    step.operations.push_back(std::move(entry));
  }
  std::ranges::sort(step.operations, std::ranges::greater(), &OperationTime::seconds);
  return step;
}

}  // namespace quern
