// Channel<T>: a bounded queue between threads; Latest<T>: the newest value of something. Any thread may send and
// receive.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

namespace quern {

template <typename T>
class Channel {
 public:
  explicit Channel(size_t capacity = std::numeric_limits<size_t>::max()) : capacity_(capacity) {}

  /// False when the channel is full or closed; `value` is then untouched.
  bool try_send(T& value) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_ || items_.size() >= capacity_) return false;
      items_.push_back(std::move(value));
    }
    ready_.notify_one();
    return true;
  }
  bool try_send(T&& value) { return try_send(value); }

  /// Waits for an item; nothing when the channel is closed and empty.
  std::optional<T> receive() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return !items_.empty() || closed_; });
    return take();
  }

  /// Waits at most until `deadline`.
  std::optional<T> receive_until(std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    ready_.wait_until(lock, deadline, [&] { return !items_.empty() || closed_; });
    return take();
  }

  std::optional<T> try_receive() {
    const std::lock_guard lock(mutex_);
    return take();
  }

  /// Nothing can be sent afterwards; what is inside can still be received.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }
  size_t size() const {
    const std::lock_guard lock(mutex_);
    return items_.size();
  }

 private:
  std::optional<T> take() {
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> items_;
  bool closed_ = false;
};

/// The newest value of something: one thread sets it, any thread reads a copy.
template <typename T>
class Latest {
 public:
  void set(const T& value) {
    const std::lock_guard lock(mutex_);
    value_ = value;
  }
  T get() const {
    const std::lock_guard lock(mutex_);
    return value_;
  }

 private:
  mutable std::mutex mutex_;
  T value_{};
};

}  // namespace quern
