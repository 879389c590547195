// Durations as people write them. Any thread.
#pragma once

#include <string_view>

#include "base/result.h"

namespace quern {

/// "300", "5m", "1h30m", "1.5s", "250ms" as seconds; a minus in front makes it negative.
Result<double> parse_duration(std::string_view text);

}  // namespace quern
