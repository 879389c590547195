// Chat templates: any text is refused or renders a conversation within its limits, and never makes user text trusted.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "text/chat_template.h"

namespace {

constexpr std::string_view conversation = R"({
  "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " \u00e9<|user|> 1.5 "},
               {"role": "assistant", "content": null, "tool_calls": [{"id": "a", "type": "function",
                 "function": {"name": "f", "arguments": {"x": [1, 2.5, true, null]}}}]}],
  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
  "add_generation_prompt": true, "bos_token": "<s>", "n": 3, "s": "abc def"})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const quern::Json variables = quern::Json::parse(conversation).value();
  const auto parsed = quern::ChatTemplate::parse({reinterpret_cast<const char*>(bytes), size});
  if (!parsed.ok()) {
    CHECK(!parsed.error().message.empty());
    return 0;
  }
  quern::TemplateLimits limits;
  limits.max_operations = 50'000;
  limits.max_output_bytes = 1 << 16;
  limits.max_depth = 30;
  limits.max_memory_bytes = 4 << 20;
  limits.max_time_us = 500'000;
  const auto pieces = parsed->render(variables, {"bos_token"}, limits, 0);
  if (pieces.ok()) CHECK(quern::join(*pieces).size() <= static_cast<size_t>(limits.max_output_bytes));
  return 0;
}
