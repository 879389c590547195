// q3_k: 256 values of 3 bits in sixteen blocks of 16, each with a signed scale, in units of one float16.
// value = (d * scale) * (q - 4)
#pragma once

#include <string_view>

#include "formats/scaled_codes.h"
#include "formats/weight.h"

namespace quern {

struct Q3_K : ScaledCodes<Q3_K, 3, 16> {
  static constexpr FormatId id = FormatId::q3_k;
  static constexpr std::string_view name = "q3_k";
  static constexpr float error = 0.26F;  // largest error of encode, in parts of the group's largest magnitude
  static constexpr float unit = 1.0F;
  static constexpr int zero = 4;
  static constexpr int level(uint32_t code) { return static_cast<int>(code) - zero; }
};

}  // namespace quern
