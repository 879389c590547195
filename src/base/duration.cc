#include "base/duration.h"

#include <charconv>
#include <fmt/format.h>
#include <utility>

namespace quern {

Result<double> parse_duration(std::string_view text) {
  static constexpr std::pair<std::string_view, double> units[] = {
      {"ns", 1e-9}, {"us", 1e-6}, {"\u00B5s", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
  const Error error{fmt::format("'{}' is no duration; say 300, 5m or 1h30m", text.substr(0, 64))};
  const bool negative = text.starts_with('-');
  std::string_view rest = text.substr(negative || text.starts_with('+') ? 1 : 0);
  if (rest.empty()) return error;
  double seconds = 0;
  for (bool first = true; !rest.empty(); first = false) {
    if (rest.front() != '.' && (rest.front() < '0' || rest.front() > '9')) return error;
    double number = 0;
    const auto [end, failed] =
        std::from_chars(rest.data(), rest.data() + rest.size(), number, std::chars_format::fixed);
    if (failed != std::errc()) return error;
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    if (rest.empty() && first) return negative ? -number : number;
    const auto* unit = std::begin(units);
    while (unit != std::end(units) && !(rest.starts_with(unit->first))) ++unit;
    if (unit == std::end(units)) return error;
    rest.remove_prefix(unit->first.size());
    seconds += number * unit->second;
  }
  return negative ? -seconds : seconds;
}

}  // namespace quern
