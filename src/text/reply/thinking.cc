#include "text/reply/thinking.h"

#include <algorithm>
#include <fmt/format.h>

namespace quern {
namespace {

/// The first one of which a template shows the end is taken.
const std::vector<Thinking>& known() {
  static const std::vector<Thinking> all = {
      {"<think>",
       "</think>",
       {"deepseek_r1", "deepseek_v3", "ernie45", "glm45", "granite", "holo2", "hunyuan_a13b", "kimi_k2", "minimax_m2",
        "nemotron_v3", "olmo3", "qwen3", "step3", "step3p5"}},
      {"[THINK]", "[/THINK]", {"mistral"}},
      {"<seed:think>", "</seed:think>", {"seed_oss"}},
      {"<|START_THINKING|>", "<|END_THINKING|>", {"cohere_command"}},
      {"◁think▷", "◁/think▷", {"kimi"}},
  };
  return all;
}

}  // namespace

Result<const Thinking*> find_thinking(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Thinking& thinking : known()) {
    if (std::find(thinking.names.begin(), thinking.names.end(), name) != thinking.names.end()) return &thinking;
    names.insert(names.end(), thinking.names.begin(), thinking.names.end());
  }
  std::sort(names.begin(), names.end());
  return Error{fmt::format("there is no reasoning parser '{}'; the known ones are {}", name, fmt::join(names, ", "))};
}

const Thinking* detect_thinking(std::string_view chat_template) {
  for (const Thinking& thinking : known()) {
    if (chat_template.find(thinking.end) != std::string_view::npos) return &thinking;
  }
  return nullptr;
}

}  // namespace quern
