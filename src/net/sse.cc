#include "net/sse.h"

#include <utility>

namespace quern {

std::vector<std::string> SseReader::add(std::string_view bytes) {
  std::vector<std::string> events;
  const size_t known = held_.size();  // without an end of line
  held_ += bytes;
  size_t start = 0;
  for (size_t end = held_.find('\n', known); end != std::string::npos; end = held_.find('\n', start)) {
    std::string_view line = std::string_view(held_).substr(start, end - start);
    if (line.ends_with('\r')) line.remove_suffix(1);
    take_line(line, events);
    start = end + 1;
  }
  held_.erase(0, start);
  return events;
}

void SseReader::take_line(std::string_view line, std::vector<std::string>& events) {
  constexpr std::string_view field = "data:";
  if (line.empty()) {
    if (std::exchange(has_data_, false)) events.push_back(std::exchange(data_, {}));
    return;
  }
  if (!line.starts_with(field)) return;
  line.remove_prefix(field.size());
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += line;
  has_data_ = true;
}

}  // namespace quern
