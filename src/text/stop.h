// StopMatcher: finds stop strings in a growing text, across the pieces it arrives in. Thread: whoever owns the answer.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quern {

class StopMatcher {
 public:
  /// With `keep`, the stop string itself stays in the text (include_stop_str_in_output).
  StopMatcher(std::vector<std::string> stops, bool keep);

  /// Takes new text and returns what is safe to show: everything but a tail that could still become a stop string.
  /// After a stop string was found the text up to it is returned and nothing ever again.
  std::string add(std::string_view text);
  /// The held tail; at the end of an answer that hit no stop string.
  std::string finish();
  /// The stop string that was found: of those that end first in the text, the one that starts first.
  const std::optional<std::string>& found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  bool keep_;
  std::string held_;
  std::optional<std::string> found_;
};

}  // namespace quern
