// Time that only moves forward.
#pragma once

#include <chrono>
#include <cstdint>

namespace quern {

/// Microseconds since an arbitrary fixed moment.
inline int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline double seconds_since(int64_t start_us) { return static_cast<double>(now_us() - start_us) * 1e-6; }

}  // namespace quern
