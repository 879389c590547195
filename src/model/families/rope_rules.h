// Rotary frequencies as configurations spell them: base, partial rotation and the known rules of scaling.
#pragma once

#include <string_view>

#include "model/families/config.h"
#include "model/spec.h"

namespace quern {

/// What a rope depends on besides its own keys.
struct RopeFrame {
  int head_dim = 0;
  int max_positions = 0;
  double default_theta = 10000.0;
};

/// Old spelling (`rope_theta`, `rope_scaling`) or new (`rope_parameters`, which may have one entry per kind of layer).
RopeSpec read_rope(Config& config, const RopeFrame& frame, std::string_view layer_kind);
/// The dictionary that holds the keys of a rope; empty when there is none.
const Json& rope_keys(const Config& config, std::string_view layer_kind);
/// No scaling.
RopeSpec plain_rope(Config& config, const RopeFrame& frame, double theta);
/// The context length when it does not count the scaling in: linear and yarn multiply it.
int extended_positions(Config& config, int max_positions, int max);

}  // namespace quern
