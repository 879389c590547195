// PullBar: how far a pull is, for people: a bar with rate and time left on a terminal, now and then a line elsewhere.
// Thread: one.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <utility>

#include "hub/pull.h"

namespace quern {

class PullBar {
 public:
  /// `quiet` shows nothing.
  explicit PullBar(bool quiet);
  ~PullBar();
  PullBar(const PullBar&) = delete;
  PullBar& operator=(const PullBar&) = delete;

  void show(const FileProgress& progress);

 private:
  void line(const std::string& text);
  std::string state(const FileProgress& progress) const;

  const bool quiet_;
  const bool terminal_;
  bool visible_ = false;
  bool waited_ = false;
  int64_t shown_us_;
  std::set<std::string> coming_;                  // files that were not there when they were first told of
  std::deque<std::pair<int64_t, int64_t>> past_;  // times and bytes of the last seconds
};

/// "4.68 GB", "890.2 MB", "12 kB".
std::string size_text(int64_t bytes);
/// "1h04m", "1m20s", "9s".
std::string time_text(double seconds);

}  // namespace quern
