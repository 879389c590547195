// For tests: what tools/make_tool_call_cases.py has written: tools, and replies as real templates render them.
#pragma once

#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "text/reply/tool.h"

namespace quern {

inline const Json& call_cases(const std::string& source_folder) {
  static const Json parsed =
      Json::parse(read_file(source_folder + "/src/text/testdata/tool_call_cases.json", 1 << 22).value()).value();
  return parsed;
}

inline std::vector<Tool> case_tools(const std::string& source_folder) {
  std::vector<Tool> tools;
  for (const Json& tool : call_cases(source_folder).find("tools")->items()) {
    const Json& function = *tool.find("function");
    tools.push_back({*function.string("name"), *function.find("parameters")});
  }
  return tools;
}

}  // namespace quern
