// The configuration file of `quern serve`: TOML whose keys are the names of flags. Thread: main.
#pragma once

#include <string>
#include <vector>

#include "base/flags.h"
#include "base/result.h"

namespace quern {

/// The words of a command line that says the same: `port = 80` is `--port=80`, `webui = false` is `--no-webui`, a list
/// repeats its flag, and those under `models` stand without one. `flags` are those that may be named.
Result<std::vector<std::string>> config_words(const std::string& path, const Flags& flags);

}  // namespace quern
