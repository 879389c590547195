#include "checkpoint/wording.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"

namespace quern {

std::string quoted(std::string_view text) {
  constexpr size_t longest = 80;
  std::string out;
  append_json_string(out, text.substr(0, longest));
  if (text.size() > longest) out += fmt::format("... ({} bytes)", text.size());
  return out;
}

std::string shape_text(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string list_text(std::span<const std::string_view> names) { return fmt::format("{}", fmt::join(names, ", ")); }

}  // namespace quern
