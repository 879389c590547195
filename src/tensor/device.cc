#include "tensor/device.h"

#include <array>
#include <fmt/format.h>

namespace quern {
namespace {

std::array<MakeDevice, device_kinds>& makers() {
  static std::array<MakeDevice, device_kinds> table{};
  return table;
}

}  // namespace

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
