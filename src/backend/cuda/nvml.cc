#include "backend/cuda/nvml.h"

#include <array>
#include <cuda_runtime.h>
#include <dlfcn.h>

namespace quern::cuda {
namespace {

// The part of the library's interface that is used here, as its documentation states it.
using NvmlDevice = struct NvmlDeviceState*;
using Status = int;  // 0: success
struct Utilization {
  unsigned gpu = 0;  // percent
  unsigned memory = 0;
};
struct Memory {
  unsigned long long total = 0;
  unsigned long long free = 0;
  unsigned long long used = 0;
};
constexpr int sm_clock = 1;
constexpr int core_sensor = 0;

struct Functions {
  Status (*init)() = nullptr;
  Status (*shut_down)() = nullptr;
  Status (*device_of_bus)(const char* bus, NvmlDevice*) = nullptr;
  Status (*utilization)(NvmlDevice, Utilization*) = nullptr;
  Status (*power)(NvmlDevice, unsigned* milliwatts) = nullptr;
  Status (*temperature)(NvmlDevice, int sensor, unsigned* celsius) = nullptr;
  Status (*clock)(NvmlDevice, int clock, unsigned* megahertz) = nullptr;
  Status (*memory)(NvmlDevice, Memory*) = nullptr;
};

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

/// Functions that only some drivers have stay null.
bool find_all(void* library, Functions& functions) {
  find(library, "nvmlDeviceGetUtilizationRates", functions.utilization);
  find(library, "nvmlDeviceGetPowerUsage", functions.power);
  find(library, "nvmlDeviceGetTemperature", functions.temperature);
  find(library, "nvmlDeviceGetClockInfo", functions.clock);
  find(library, "nvmlDeviceGetMemoryInfo", functions.memory);
  return find(library, "nvmlInit_v2", functions.init) && find(library, "nvmlShutdown", functions.shut_down) &&
         find(library, "nvmlDeviceGetHandleByPciBusId_v2", functions.device_of_bus);
}

/// A value that a function writes, or nothing.
template <typename Value, typename... Args>
std::optional<Value> ask(Status (*function)(NvmlDevice, Args..., Value*), NvmlDevice device, Args... args) {
  Value value{};
  if (function == nullptr || function(device, args..., &value) != 0) return std::nullopt;
  return value;
}

class OpenNvml final : public Nvml {
 public:
  /// Takes over the library.
  explicit OpenNvml(void* library) : library_(library) {}

  ~OpenNvml() override {
    if (started_) functions_.shut_down();
    dlclose(library_);
  }

  bool start(const char* bus) {
    if (!find_all(library_, functions_) || functions_.init() != 0) return false;
    started_ = true;
    return functions_.device_of_bus(bus, &device_) == 0;
  }

  GpuReadings read() override {
    GpuReadings readings;
    if (const auto used = ask<Utilization>(functions_.utilization, device_)) readings.utilization = used->gpu / 100.0;
    if (const auto power = ask<unsigned>(functions_.power, device_)) readings.power_watts = *power / 1000.0;
    if (const auto celsius = ask<unsigned, int>(functions_.temperature, device_, core_sensor)) {
      readings.temperature_celsius = *celsius;
    }
    if (const auto clock = ask<unsigned, int>(functions_.clock, device_, sm_clock)) readings.sm_clock_hz = *clock * 1e6;
    if (const auto memory = ask<Memory>(functions_.memory, device_)) {
      readings.memory_used_bytes = static_cast<int64_t>(memory->used);
    }
    return readings;
  }

 private:
  void* library_;
  Functions functions_;
  bool started_ = false;
  NvmlDevice device_ = nullptr;
};

}  // namespace

std::unique_ptr<Nvml> open_nvml(int index) {
  std::array<char, 32> bus{};
  if (cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), index) != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  auto nvml = std::make_unique<OpenNvml>(library);
  if (!nvml->start(bus.data())) return nullptr;
  return nvml;
}

}  // namespace quern::cuda
