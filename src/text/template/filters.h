// What filters and methods share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/template/renderer.h"

namespace quern {

/// Text without the characters of `characters` (nullptr: white space) at its ends.
Text strip_text(const Text& text, const Text* characters, bool left, bool right);
/// Python's splitlines, without the line breaks.
std::vector<Text> split_lines(const Text& text, bool keep_breaks);
/// `text` with up to `count` (-1: all) of `from` replaced.
Value replace_text(Renderer& renderer, const Text& text, const Text& from, const Text& to, int64_t count);
Value join_items(Renderer& renderer, const Text& separator, const std::vector<Value>& items);
Value center_text(Renderer& renderer, const Text& text, int64_t width, const Text& fill);

/// Filters on sequences, in a table of their own.
NativeCode find_sequence_filter(std::string_view name);

}  // namespace quern
