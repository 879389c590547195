// MachineLimits: what this machine can do at most, measured now; the denominators of every benchmark figure.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "tensor/device.h"

namespace quern {

struct MachineLimits {
  double read_bytes_per_second = 0.0;  // all threads together, best of several passes over the same block
  double flops_per_second = 0.0;       // CPU: float32 multiply-adds (two operations each) in registers, all threads;
                                       // GPU: a bfloat16 matrix product of 8192 x 8192 x 8192
};

/// What a GPU does with products of 8-bit floats, in parts of what it does with bfloat16: 1,400 and 790 TFLOP/s,
/// measured on an H200.
inline constexpr double fp8_rate = 1.77;

/// Reads a block of `bytes` again and again, as decoding reads its weights: what stays in the caches counts.
MachineLimits measure_limits(int threads, int64_t bytes);
/// Takes 8 GiB of the GPU meanwhile.
Result<MachineLimits> measure_gpu_limits(Device& device);

}  // namespace quern
