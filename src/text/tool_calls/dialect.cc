#include "text/tool_calls/dialect.h"

#include <algorithm>
#include <deque>
#include <fmt/format.h>

namespace quern {
namespace {

std::deque<Dialect>& known() {
  static std::deque<Dialect> all;
  return all;
}

}  // namespace

KnownDialect::KnownDialect(Dialect dialect) { known().push_back(std::move(dialect)); }

Result<const Dialect*> find_dialect(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Dialect& dialect : known()) {
    const auto& more = dialect.more_names;
    if (dialect.name == name || std::find(more.begin(), more.end(), name) != more.end()) return &dialect;
    names.push_back(dialect.name);
  }
  std::sort(names.begin(), names.end());
  return Error{fmt::format("there is no tool-call parser '{}'; the known ones are {}", name, fmt::join(names, ", "))};
}

const Dialect* detect_dialect(std::string_view chat_template) {
  const Dialect* best = nullptr;
  int most = 0;
  for (const Dialect& dialect : known()) {
    const int sure = dialect.spoken_in == nullptr ? 0 : dialect.spoken_in(chat_template);
    if (sure <= most) continue;
    most = sure;
    best = &dialect;
  }
  return best;
}

int shown(std::string_view chat_template, int sure, std::initializer_list<std::string_view> all) {
  const bool every = std::all_of(all.begin(), all.end(), [&](std::string_view text) {
    return chat_template.find(text) != std::string_view::npos;
  });
  return every ? sure : 0;
}

}  // namespace quern
