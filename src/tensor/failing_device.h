// FailingDevice: another device that dies after some work, as a GPU may: how the end of everything is tested.
#pragma once

#include <cstdint>
#include <memory>

#include "tensor/device.h"

namespace quern {

/// Works on `device` for `calls` copies, marks and waits; after them all that is asked of its queue ends in DeviceLost.
std::unique_ptr<Device> failing_device(std::unique_ptr<Device> device, int64_t calls);

}  // namespace quern
