// Guarded<T>: a value that several threads share; it is only seen with its lock held. Any thread.
#pragma once

#include <mutex>
#include <utility>

namespace quern {

template <typename T>
class Guarded {
 public:
  /// Calls body(value) alone and returns what it returns. The body must not wait for others.
  template <typename Body>
  auto with(Body&& body) {
    const std::lock_guard lock(mutex_);
    return std::forward<Body>(body)(value_);
  }

 private:
  std::mutex mutex_;
  T value_;
};

}  // namespace quern
