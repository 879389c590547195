// MachineLimits: what this machine can do at most, measured now; the denominators of every benchmark figure.
#pragma once

namespace quern {

struct MachineLimits {
  double read_bytes_per_second = 0.0;  // all threads together, from memory, best of several passes
  double flops_per_second = 0.0;       // float32 multiply-adds (two operations each) in registers, all threads
};

MachineLimits measure_limits(int threads);

}  // namespace quern
