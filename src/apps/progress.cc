#include "apps/progress.h"

#include <cstdio>
#include <fmt/format.h>
#include <unistd.h>
#include <utility>

#include "base/clock.h"

namespace quern {

Progress::Progress(std::string what, bool quiet)
    : what_(std::move(what)), quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0), start_us_(now_us()) {}

Progress::~Progress() { finish(); }

void Progress::update(int64_t done, int64_t total) {
  if (quiet_ || total <= 0) return;
  const std::lock_guard lock(mutex_);
  const int64_t now = now_us();
  const int64_t first = terminal_ ? 300'000 : 1'000'000;  // what is done sooner needs no bar
  if (now - start_us_ < first || now - shown_us_ < (terminal_ ? 50'000 : 1'000'000)) return;
  shown_us_ = now;
  show(done, total);
}

void Progress::show(int64_t done, int64_t total) {
  const double part = static_cast<double>(done) / static_cast<double>(total);
  const double seconds = seconds_since(start_us_);
  const double rate = static_cast<double>(done) / seconds;
  const double left = rate > 0 ? static_cast<double>(total - done) / rate : 0.0;
  const auto text = fmt::format("{} {:3.0f} %  {:.0f} of {:.0f} MB, {:.2f} GB/s, {:.0f} s left", what_, 100 * part,
                                static_cast<double>(done) * 1e-6, static_cast<double>(total) * 1e-6, rate * 1e-9, left);
  if (!terminal_) {
    std::fprintf(stderr, "%s\n", text.c_str());
    return;
  }
  constexpr int width = 24;
  const int full = static_cast<int>(part * width);
  std::string bar(static_cast<size_t>(full), '#');
  bar.resize(width, '.');
  std::fprintf(stderr, "\r\033[K[%s] %s", bar.c_str(), text.c_str());
  std::fflush(stderr);
  visible_ = true;
}

void Progress::finish() {
  const std::lock_guard lock(mutex_);
  if (visible_) std::fprintf(stderr, "\r\033[K");
  visible_ = false;
}

}  // namespace quern
