// Device: memory and a queue of work. Thread: executor, after it was made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "tensor/queue.h"

namespace quern {

/// Thrown when a device died or ran out of memory it was promised; nothing else is thrown.
struct DeviceLost {
  std::string reason;
};

struct DeviceOptions {
  int threads = 0;  // CPU workers; 0: one per usable core
};

class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;
  virtual std::string description() const = 0;
  virtual Queue queue() = 0;

  /// Zeroed, aligned to 64 bytes (2 MiB huge pages when large); an error says how much was asked and is free.
  virtual Result<std::byte*> allocate(int64_t bytes) = 0;
  virtual void release(std::byte* memory) = 0;
  virtual int64_t allocated_bytes() const = 0;
  /// What could still be allocated now.
  virtual int64_t free_bytes() const = 0;

  /// Queued; the host memory stays untouched until wait().
  virtual void copy_in(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  virtual void copy_out(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  virtual void wait() = 0;
};

using MakeDevice = Result<std::unique_ptr<Device>> (*)(const DeviceOptions&);

/// Called by each backend when the program starts.
bool register_device(DeviceKind kind, MakeDevice make);
Result<std::unique_ptr<Device>> make_device(DeviceKind kind, const DeviceOptions& options);

}  // namespace quern
