// Reading<T>: a coroutine that runs when it is awaited and then goes on with whoever awaits it. One thread at a time.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

namespace quern {

template <typename T>
class [[nodiscard]] Reading {
 public:
  struct promise_type {
    Reading get_return_object() { return Reading(Handle::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    auto final_suspend() noexcept { return Resume{}; }
    void return_value(T made) { value = std::move(made); }
    void unhandled_exception() { std::terminate(); }

    std::optional<T> value;
    std::coroutine_handle<> continuation = std::noop_coroutine();
  };
  using Handle = std::coroutine_handle<promise_type>;

  Reading(Reading&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Reading& operator=(Reading&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Reading() {
    if (handle_) handle_.destroy();
  }

  bool await_ready() const noexcept { return false; }
  Handle await_suspend(std::coroutine_handle<> awaiting) noexcept {
    handle_.promise().continuation = awaiting;
    return handle_;
  }
  T await_resume() { return std::move(*handle_.promise().value); }

  /// For a task that nobody awaits.
  void start() { handle_.resume(); }
  bool done() const { return handle_.done(); }

 private:
  struct Resume {
    bool await_ready() const noexcept { return false; }
    std::coroutine_handle<> await_suspend(Handle ended) const noexcept { return ended.promise().continuation; }
    void await_resume() const noexcept {}
  };
  explicit Reading(Handle handle) : handle_(handle) {}

  Handle handle_;
};

}  // namespace quern
