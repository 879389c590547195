// ExecutorMemory: what an executor takes from its device when it is made, all of it or nothing, and gives back when it
// goes. Thread: the one that makes and destroys the executor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/result.h"
#include "tensor/device.h"

namespace quern {

class ExecutorMemory {
 public:
  static Result<ExecutorMemory> take(Device& device, int64_t block_bytes, int64_t host_bytes, int64_t pool_bytes) {
    ExecutorMemory memory(device);
    ASSIGN_OR_RETURN(memory.parts_[0], device.allocate(block_bytes));
    ASSIGN_OR_RETURN(memory.parts_[1], device.allocate_host(host_bytes));
    ASSIGN_OR_RETURN(memory.parts_[2], device.allocate(pool_bytes));
    return memory;
  }
  ExecutorMemory(ExecutorMemory&& other) noexcept : device_(other.device_), parts_(std::exchange(other.parts_, {})) {}
  ExecutorMemory& operator=(ExecutorMemory&&) = delete;
  ~ExecutorMemory() {
    for (std::byte* const part : parts_) {
      if (part != nullptr) device_.release(part);
    }
  }

  std::byte* block() const { return parts_[0]; }  // inputs, lists, tables, activations
  std::byte* host() const { return parts_[1]; }   // what the device reads and writes there
  std::byte* pool() const { return parts_[2]; }   // KV pages and states

 private:
  explicit ExecutorMemory(Device& device) : device_(device) {}

  Device& device_;
  std::array<std::byte*, 3> parts_{};
};

}  // namespace quern
