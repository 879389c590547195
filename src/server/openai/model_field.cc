#include "server/openai/model_field.h"

#include "base/json.h"

namespace quern {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

/// Behind the string that begins at `at`; npos when it does not end.
size_t end_of_string(std::string_view text, size_t at) {
  for (at = text.find_first_of("\"\\", at + 1); at < text.size(); at = text.find_first_of("\"\\", at + 2)) {
    if (text[at] == '"') return at + 1;
  }
  return std::string_view::npos;
}

/// Where the value that begins at `at` ends: at a comma or bracket of the outermost object.
size_t end_of_value(std::string_view text, size_t at) {
  int depth = 0;
  while (true) {
    at = text.find_first_of("\"{}[],", at);
    if (at == std::string_view::npos) return at;
    const char c = text[at];
    if (c == '"') {
      at = end_of_string(text, at);
      if (at == std::string_view::npos) return at;
      continue;
    }
    if (depth == 0 && (c == ',' || c == '}' || c == ']')) return at;
    depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
    ++at;
  }
}

}  // namespace

std::string model_field(std::string_view body) {
  size_t at = body.find_first_not_of(kSpace);
  if (at == std::string_view::npos || body[at] != '{') return "";
  while (true) {
    at = body.find_first_not_of(kSpace, at + 1);  // behind the brace or comma
    if (at == std::string_view::npos || body[at] != '"') return "";
    const size_t key_end = end_of_string(body, at);
    if (key_end == std::string_view::npos) return "";
    const std::string_view key = body.substr(at, key_end - at);
    const size_t colon = body.find_first_not_of(kSpace, key_end);
    if (colon == std::string_view::npos || body[colon] != ':') return "";
    const size_t end = end_of_value(body, colon + 1);
    if (end == std::string_view::npos) return "";
    if (key == "\"model\"") {
      const auto value = Json::parse(body.substr(colon + 1, end - colon - 1));
      return value.ok() && value->is_string() ? value->as_string() : "";
    }
    if (body[end] != ',') return "";
    at = end;
  }
}

}  // namespace quern
