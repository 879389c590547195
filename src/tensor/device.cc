#include "tensor/device.h"

#include <array>
#include <chrono>
#include <fmt/format.h>

namespace quern {
namespace {

std::array<MakeDevice, device_kinds>& makers() {
  static std::array<MakeDevice, device_kinds> table{};
  return table;
}

class HostLaps final : public Laps {
 public:
  void mark() override { marks_.push_back(Clock::now()); }
  std::vector<double> seconds() override {
    std::vector<double> all;
    for (size_t i = 1; i < marks_.size(); ++i) {
      all.push_back(std::chrono::duration<double>(marks_[i] - marks_[i - 1]).count());
    }
    marks_.clear();
    return all;
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::vector<Clock::time_point> marks_;
};

}  // namespace

std::unique_ptr<Laps> Device::make_laps() { return std::make_unique<HostLaps>(); }

bool register_device(DeviceKind kind, MakeDevice make) {
  makers()[static_cast<size_t>(kind)] = make;
  return true;
}

Result<std::unique_ptr<Device>> make_device(DeviceKind kind, const DeviceOptions& options) {
  const MakeDevice make = makers()[static_cast<size_t>(kind)];
  if (make == nullptr) return Error{fmt::format("this build of quern has no {} backend", device_name(kind))};
  return make(options);
}

}  // namespace quern
