// FailingDevice: another device that dies after some steps, as a GPU may: how the end of everything is tested.
#pragma once

#include <memory>

#include "tensor/device.h"

namespace quern {

/// Computes on `device` until mark() was called `marks` times; the next one, and all that is asked of its queue after
/// it, ends in DeviceLost.
std::unique_ptr<Device> failing_device(std::unique_ptr<Device> device, int marks);

}  // namespace quern
