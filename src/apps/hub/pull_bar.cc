#include "apps/hub/pull_bar.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <unistd.h>

#include "base/clock.h"

namespace quern {
namespace {

constexpr int64_t kWindow_us = 5'000'000;  // the rate is that of the last seconds
constexpr int64_t kLineInterval_us = 10'000'000;

}  // namespace

std::string size_text(int64_t bytes) {
  const auto size = static_cast<double>(bytes);
  if (bytes >= 1'000'000'000) return fmt::format("{:.2f} GB", size * 1e-9);
  if (bytes >= 1'000'000) return fmt::format("{:.1f} MB", size * 1e-6);
  return bytes >= 1000 ? fmt::format("{:.0f} kB", size * 1e-3) : fmt::format("{} B", bytes);
}

std::string time_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole >= 3600) return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
  return whole >= 60 ? fmt::format("{}m{:02}s", whole / 60, whole % 60) : fmt::format("{}s", whole);
}

PullBar::PullBar(bool quiet) : quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0), shown_us_(now_us()) {}

PullBar::~PullBar() {
  if (visible_) std::fprintf(stderr, "\r\033[K");
}

void PullBar::show(const FileProgress& progress) {
  if (quiet_) return;
  if (progress.waiting) {
    if (!waited_) line(fmt::format("waiting: another process is bringing {}", progress.file));
    waited_ = true;
    return;
  }
  const int64_t now = now_us();
  if (past_.empty() || now - past_.back().first > 100'000) past_.emplace_back(now, progress.all_completed);
  while (past_.size() > 2 && past_.front().first < now - kWindow_us) past_.pop_front();
  if (progress.completed < progress.total) coming_.insert(progress.file);
  if (progress.completed == progress.total && coming_.erase(progress.file) > 0)
    line(fmt::format("  {}  {}", progress.file, size_text(progress.total)));
  if (now - shown_us_ < (terminal_ ? 100'000 : kLineInterval_us)) return;
  shown_us_ = now;
  if (!terminal_) return line(state(progress));
  constexpr int width = 24;
  const double part =
      static_cast<double>(progress.all_completed) / static_cast<double>(std::max<int64_t>(1, progress.all_total));
  std::string bar(static_cast<size_t>(part * width), '#');
  bar.resize(width, '.');
  std::fprintf(stderr, "\r\033[K[%s] %s", bar.c_str(), state(progress).c_str());
  std::fflush(stderr);
  visible_ = true;
}

std::string PullBar::state(const FileProgress& progress) const {
  const auto [then, before] = past_.front();
  const auto [now, done] = past_.back();
  const double seconds = static_cast<double>(now - then) * 1e-6;
  const double rate = seconds > 0 ? static_cast<double>(done - before) / seconds : 0.0;
  const auto left = static_cast<double>(progress.all_total - progress.all_completed);
  const double percent = 100.0 * static_cast<double>(progress.all_completed) /
                         static_cast<double>(std::max<int64_t>(1, progress.all_total));
  return fmt::format("{:3.0f} %  {} of {}, {}/s{}", percent, size_text(progress.all_completed),
                     size_text(progress.all_total), size_text(static_cast<int64_t>(rate)),
                     rate > 0 ? fmt::format(", {} left", time_text(left / rate)) : "");
}

void PullBar::line(const std::string& text) {
  std::fprintf(stderr, "%s%s\n", visible_ ? "\r\033[K" : "", text.c_str());
  visible_ = false;
}

}  // namespace quern
