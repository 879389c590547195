// Budget: what one rendering of a template may still use, and the first thing that went wrong. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/clock.h"
#include "text/chat_template.h"

namespace quern {

/// The error is sticky: after the first failure every value is meaningless, and all loops stop at their next `spend`.
class Budget {
 public:
  explicit Budget(const TemplateLimits& limits) : limits_(limits), started_us_(now_us()) {}

  const TemplateLimits& limits() const { return limits_; }
  bool failed() const { return failed_; }
  const std::string& message() const { return message_; }

  /// Records the reason; only the first one counts.
  void fail(std::string message) {
    if (!failed_) message_ = std::move(message);
    failed_ = true;
  }

  /// Takes `operations`; false when the rendering has to stop.
  bool spend(int64_t operations = 1) {
    operations_ += operations;
    if (operations_ > limits_.max_operations) {
      fail("the template takes more than " + std::to_string(limits_.max_operations) + " operations");
    } else if (operations_ >= next_look_) {
      next_look_ = operations_ + kOperationsPerLook;
      if (now_us() - started_us_ > limits_.max_time_us) {
        fail("the template runs longer than " + std::to_string(limits_.max_time_us / 1000) + " ms");
      }
    }
    return !failed_;
  }

  /// The price of touching `bytes` of text.
  bool spend_bytes(size_t bytes) { return spend(1 + static_cast<int64_t>(bytes / 64)); }

  /// Asks whether a string of that many bytes may be made at all.
  bool allows_text(int64_t bytes) {
    if (bytes > limits_.max_output_bytes) {
      fail("the template makes a text of more than " + std::to_string(limits_.max_output_bytes) + " bytes");
    }
    return !failed_;
  }

  /// Counts memory that values hold.
  void hold(size_t bytes) {
    held_bytes_ += static_cast<int64_t>(bytes);
    if (held_bytes_ > limits_.max_memory_bytes) {
      fail("the template uses more than " + std::to_string(limits_.max_memory_bytes) + " bytes of memory");
    }
  }
  void release(size_t bytes) { held_bytes_ -= static_cast<int64_t>(bytes); }

  bool enter() {
    if (++depth_ > kLevelsPerCall * limits_.max_depth) fail("the template nests too deeply");
    return !failed_;
  }
  void leave() { --depth_; }

 private:
  static constexpr int64_t kOperationsPerLook = 500;
  static constexpr int kLevelsPerCall = 20;  // statements and expressions around one call, at most, on average

  TemplateLimits limits_;
  int64_t started_us_;
  int64_t operations_ = 0;
  int64_t next_look_ = 0;
  int64_t held_bytes_ = 0;
  int depth_ = 0;
  bool failed_ = false;
  std::string message_;
};

/// One level of nesting, for as long as it lives.
class Level {
 public:
  explicit Level(Budget& budget) : budget_(budget), entered_(budget.enter()) {}
  ~Level() { budget_.leave(); }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
  explicit operator bool() const { return entered_; }

 private:
  Budget& budget_;
  bool entered_;
};

}  // namespace quern
