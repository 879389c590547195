// Queue: where a kernel is put. The native handle is a ThreadPool* on the CPU, a CudaQueue* (backend/cuda) on a GPU.
#pragma once

#include <cstdint>

namespace quern {

enum class DeviceKind : uint8_t { cpu, cuda };
inline constexpr int device_kinds = 2;

constexpr const char* device_name(DeviceKind kind) { return kind == DeviceKind::cpu ? "cpu" : "cuda"; }

struct Queue {
  DeviceKind kind = DeviceKind::cpu;
  void* native = nullptr;
  bool batch_invariant = true;  // no kernel is chosen by how many tokens a step has; CPU kernels never are
};

}  // namespace quern
