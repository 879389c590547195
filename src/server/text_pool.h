// TextPool: a few threads that turn requests into tokens, so that event loops never wait for it. Any thread.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "base/channel.h"

namespace quern {

class TextPool {
 public:
  using Task = std::function<void()>;

  TextPool(int threads, size_t max_waiting) : tasks_(max_waiting) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] {
        while (const auto task = tasks_.receive()) (*task)();
      });
    }
  }
  /// What waits is still done.
  ~TextPool() { stop(); }
  TextPool(const TextPool&) = delete;
  TextPool& operator=(const TextPool&) = delete;

  /// The end of its threads; nothing can be run afterwards.
  void stop() {
    tasks_.close();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  /// False when too many wait.
  bool try_run(Task task) { return tasks_.try_send(std::move(task)); }

 private:
  Channel<Task> tasks_;
  std::vector<std::thread> threads_;
};

}  // namespace quern
