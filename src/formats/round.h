// What the formats' encode functions share. Host only.
#pragma once

#include <cmath>
#include <cstdint>

#include "formats/half.h"

namespace quern {

/// The value of largest magnitude, with its sign.
inline float extreme(const float* x, int count) {
  float best = 0.0F;
  for (int j = 0; j < count; ++j) {
    if (std::fabs(x[j]) > std::fabs(best)) best = x[j];
  }
  return best;
}

/// x / step + offset, rounded to nearest and kept in [0, top]; `offset` when there is no step.
inline uint32_t level(float x, float step, int offset, int top) {
  if (step == 0.0F) return static_cast<uint32_t>(offset);
  const float rounded = std::nearbyint(x / step) + static_cast<float>(offset);
  return static_cast<uint32_t>(std::fmin(std::fmax(rounded, 0.0F), static_cast<float>(top)));
}

/// What is left of a value after a stay in float16.
inline float through_f16(float value) { return f16_to_f32(f32_to_f16(value)); }

}  // namespace quern
