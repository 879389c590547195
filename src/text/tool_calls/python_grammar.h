// The keyword arguments of a call as Python writes them, by the schema of a tool: names, which ones must be there, and
// types. What else a schema says (patterns, bounds) holds nothing back. A value.
#pragma once

#include <string>

#include "base/json.h"

namespace quern {

/// EBNF whose rule `root` takes what stands between the parentheses.
std::string python_arguments(const Json& schema);

}  // namespace quern
