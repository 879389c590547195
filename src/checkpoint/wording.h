// How messages show what stood in a file. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace quern {

/// In quotes, shortened when long, harmless on a terminal.
std::string quoted(std::string_view text);
/// "[576, 49152]"
std::string shape_text(std::span<const int64_t> shape);
/// "gemma3, llama, qwen2"
std::string list_text(std::span<const std::string_view> names);

}  // namespace quern
