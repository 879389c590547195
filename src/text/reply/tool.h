// Tool: a function that a request lets the model call. Values.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace quern {

struct Tool {
  std::string name;
  Json parameters;  // a JSON schema of an object; null: no arguments
};

inline const Tool* find_tool(const std::vector<Tool>& tools, std::string_view name) {
  const auto found = std::find_if(tools.begin(), tools.end(), [&](const Tool& tool) { return tool.name == name; });
  return found == tools.end() ? nullptr : &*found;
}

}  // namespace quern
