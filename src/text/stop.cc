#include "text/stop.h"

#include <algorithm>
#include <utility>

namespace quern {

StopMatcher::StopMatcher(std::vector<std::string> stops, bool keep) : stops_(std::move(stops)), keep_(keep) {
  std::erase(stops_, "");
}

std::string StopMatcher::add(std::string_view text) {
  if (found_) return {};
  held_ += text;
  size_t begin = std::string::npos;
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos) continue;
    const size_t stop_end = at + stop.size();
    if (stop_end > end || (stop_end == end && at > begin)) continue;
    begin = at;
    end = stop_end;
    found_ = stop;
  }
  if (found_) {
    held_.resize(keep_ ? end : begin);
    return std::exchange(held_, {});
  }
  size_t tail = 0;  // the longest end of the text that is the start of a stop string
  for (const std::string& stop : stops_) {
    size_t length = std::min(stop.size() - 1, held_.size());
    while (length > tail && !std::string_view(held_).ends_with(std::string_view(stop).substr(0, length))) --length;
    tail = std::max(tail, length);
  }
  std::string safe = held_.substr(0, held_.size() - tail);
  held_.erase(0, safe.size());
  return safe;
}

std::string StopMatcher::finish() { return std::exchange(held_, {}); }

}  // namespace quern
