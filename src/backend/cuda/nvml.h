// Nvml: what the driver's management library says of a GPU. The library is opened at run time; without it, nothing is
// known. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

namespace quern::cuda {

/// Readings of this moment; nothing where the GPU or its driver does not tell.
struct GpuReadings {
  std::optional<double> utilization;  // share of the last sampling period in which a kernel ran
  std::optional<double> power_watts;
  std::optional<double> temperature_celsius;
  std::optional<double> sm_clock_hz;
  std::optional<int64_t> memory_used_bytes;  // by all processes
};

class Nvml {
 public:
  virtual ~Nvml() = default;
  virtual GpuReadings read() = 0;
};

/// Of the GPU with this number among those that the process sees; null where the library is missing or does not know
/// it.
std::unique_ptr<Nvml> open_nvml(int index);

}  // namespace quern::cuda
