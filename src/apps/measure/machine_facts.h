// MachineFacts: what a figure was measured on and by: the machine, its clocks and the program. Values.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace quern {

/// The commit that the program was built from, or "" outside of a git repository.
extern const std::string_view git_hash;

/// Version, commit, processor, its clock now, cores, memory, kernel, and the clock that times are read from.
Json machine_facts();

/// "model name : X" in the text of /proc/cpuinfo or /proc/meminfo: X, or "".
std::string proc_value(std::string_view text, std::string_view key);

}  // namespace quern
