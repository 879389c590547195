// MachineLimits: what this machine can do at most, measured now; the denominators of every benchmark figure.
#pragma once

#include <cstdint>

namespace quern {

struct MachineLimits {
  double read_bytes_per_second = 0.0;  // all threads together, best of several passes over the same block
  double flops_per_second = 0.0;       // float32 multiply-adds (two operations each) in registers, all threads
};

/// Reads a block of `bytes` again and again, as decoding reads its weights: what stays in the caches counts.
MachineLimits measure_limits(int threads, int64_t bytes);

}  // namespace quern
