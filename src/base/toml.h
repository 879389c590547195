// TOML texts as JSON values. Any thread.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace quern {

/// An object. Dates and times are refused. The error says where.
Result<Json> parse_toml(std::string_view text);

}  // namespace quern
