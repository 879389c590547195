// The file of API keys: TOML, a table for each holder. Thread: main.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "server/access/api_key.h"

namespace quern {

/// `[alice]` with `key = "..."`, or `sha256 = "64 hexadecimal digits"` of it, and limits: requests_per_minute,
/// tokens_per_minute, concurrency, priority. Errors never show a key.
Result<std::vector<ApiKey>> read_keys(const std::string& path);

}  // namespace quern
