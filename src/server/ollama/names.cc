#include "server/ollama/names.h"

#include <algorithm>

namespace quern {

std::string tagged(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('/') + 1);
  return std::string(name) + (last.find(':') == std::string_view::npos ? ":latest" : "");
}

bool same_model(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::ranges::equal(tagged(a), tagged(b), [&](char x, char y) { return lower(x) == lower(y); });
}

const std::string* find_served(std::string_view name, const std::vector<std::string>& served) {
  auto found = std::ranges::find(served, name);
  if (found == served.end())
    found = std::ranges::find_if(served, [&](const std::string& one) { return same_model(one, name); });
  return found == served.end() ? nullptr : &*found;
}

}  // namespace quern
