// Progress: a bar on a terminal, a line per second elsewhere. Thread: main; update() from any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

namespace quern {

class Progress {
 public:
  /// `quiet` shows nothing.
  Progress(std::string what, bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` of `total` bytes.
  void update(int64_t done, int64_t total);
  /// Takes the bar away.
  void finish();

 private:
  void show(int64_t done, int64_t total);

  const std::string what_;
  const bool quiet_;
  const bool terminal_;
  const int64_t start_us_;
  std::mutex mutex_;
  int64_t shown_us_ = 0;
  bool visible_ = false;
};

}  // namespace quern
