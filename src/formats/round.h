// What the formats' encode functions share. Host only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "formats/half.h"

namespace quern {

/// The value of largest magnitude, with its sign. By its place: clang 19 vectorizes a loop that keeps the value
/// wrongly.
inline float extreme(const float* x, int count) {
  int best = -1;
  float magnitude = 0.0F;
  for (int j = 0; j < count; ++j) {
    if (!(std::fabs(x[j]) > magnitude)) continue;
    magnitude = std::fabs(x[j]);
    best = j;
  }
  return best < 0 ? 0.0F : x[best];
}

/// x / step + offset, rounded to nearest and kept in [0, top]; `offset` when there is no step.
inline uint32_t level(float x, float step, int offset, int top) {
  if (step == 0.0F) return static_cast<uint32_t>(offset);
  const float rounded = std::nearbyint(x / step) + static_cast<float>(offset);
  return static_cast<uint32_t>(std::fmin(std::fmax(rounded, 0.0F), static_cast<float>(top)));
}

/// What is left of a value after a stay in float16.
inline float through_f16(float value) { return f16_to_f32(f32_to_f16(value)); }

/// Scales and minima of the blocks of 256 values, in units of two float16.
template <int Blocks>
struct BlockScales {
  float d = 0.0F;
  float dmin = 0.0F;
  uint32_t scales[Blocks];
  uint32_t minima[Blocks];

  /// For codes in [0, top], scales and minima in [0, largest].
  BlockScales(const float* x, int top, int largest) {
    constexpr int size = 256 / Blocks;
    float steps[Blocks];
    float lows[Blocks];
    for (int b = 0; b < Blocks; ++b) {
      const auto [low, high] = std::minmax_element(x + size * b, x + size * (b + 1));
      lows[b] = std::max(0.0F, -*low);
      steps[b] = (std::max(*high, 0.0F) + lows[b]) / static_cast<float>(top);
    }
    d = through_f16(*std::max_element(steps, steps + Blocks) / static_cast<float>(largest));
    dmin = through_f16(*std::max_element(lows, lows + Blocks) / static_cast<float>(largest));
    for (int b = 0; b < Blocks; ++b) {
      scales[b] = level(steps[b], d, 0, largest);
      minima[b] = level(lows[b], dmin, 0, largest);
    }
  }
  float step(int block) const { return d * static_cast<float>(scales[block]); }
  float low(int block) const { return dmin * static_cast<float>(minima[block]); }
};

}  // namespace quern
