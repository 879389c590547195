// SseReader: cuts a stream of server-sent events into their data. One thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quern {

class SseReader {
 public:
  /// Takes the next bytes and returns the data of the events that they complete; comments and other fields are dropped.
  std::vector<std::string> add(std::string_view bytes);

 private:
  void take_line(std::string_view line, std::vector<std::string>& events);

  std::string held_;  // a line that is not complete
  std::string data_;
  bool has_data_ = false;
};

}  // namespace quern
