// Device: memory and a queue of work. Thread: executor, after it was made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/queue.h"

namespace quern {

/// Thrown when a device died or ran out of memory it was promised; nothing else is thrown.
struct DeviceLost {
  std::string reason;
};

struct DeviceOptions {
  int threads = 0;  // CPU workers; 0: one per usable core
  int index = 0;    // which of several GPUs
  bool batch_invariant = true;
};

/// What a device tells about itself at this moment, under the name of a metric.
struct DeviceReading {
  std::string_view name;
  std::string_view help;
  double value = 0.0;
};

/// A point in a device's queue.
using QueueMark = uint64_t;

/// Work that was recorded once and runs again on the same addresses.
class Captured {
 public:
  virtual ~Captured() = default;
  virtual void launch() = 0;
};

/// Points in a device's queue between which time is taken. Thread: executor.
class Laps {
 public:
  virtual ~Laps() = default;
  virtual void mark() = 0;
  /// Waits for them; the seconds from each mark to the next. Then it begins anew.
  virtual std::vector<double> seconds() = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;
  virtual std::string description() const = 0;
  /// Whether the host may read and write what allocate() gives.
  virtual bool host_addressable() const = 0;
  virtual Queue queue() = 0;

  /// Zeroed, aligned to 64 bytes (2 MiB huge pages when large); an error says how much was asked and is free.
  virtual Result<std::byte*> allocate(int64_t bytes) = 0;
  virtual void release(std::byte* memory) = 0;
  virtual int64_t allocated_bytes() const = 0;
  /// What could still be allocated now.
  virtual int64_t free_bytes() const = 0;

  /// Host memory that kernels address too; released like other memory. Zeroed.
  virtual Result<std::byte*> allocate_host(int64_t bytes) = 0;

  /// Queued; the host memory stays untouched until wait().
  virtual void copy_in(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  virtual void copy_out(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  virtual void wait() = 0;
  /// Copies before it returns, from any memory and on any thread, beside the queue: how weights are loaded.
  virtual void upload(std::byte* to, const std::byte* from, int64_t bytes) = 0;

  /// Marks what has been queued so far; done() asks and wait_for() waits until all of that is computed.
  virtual QueueMark mark() = 0;
  virtual bool done(QueueMark mark) = 0;
  virtual void wait_for(QueueMark mark) = 0;
  /// By the host's clock, for a device that has computed when a call returns.
  virtual std::unique_ptr<Laps> make_laps();

  /// Records what `work` puts into the queue it is given, without running it; null where the device cannot. Any thread.
  virtual std::unique_ptr<Captured> capture(const std::function<void(Queue)>& work) = 0;

  /// Any thread.
  virtual std::vector<DeviceReading> readings() { return {}; }
};

using MakeDevice = Result<std::unique_ptr<Device>> (*)(const DeviceOptions&);

/// Called by each backend when the program starts.
bool register_device(DeviceKind kind, MakeDevice make);
Result<std::unique_ptr<Device>> make_device(DeviceKind kind, const DeviceOptions& options);

}  // namespace quern
