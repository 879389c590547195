// Interrupt: Ctrl-C and SIGTERM as something a program waits for instead of dies of. Thread: main; one per process.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace quern {

/// Make it before any other thread starts, so that all of them leave the signals to it. `act` is called on a thread of
/// its own for each signal (SIGINT or SIGTERM; SIGHUP too when `hangup` says so, which else ends the program).
class Interrupt {
 public:
  explicit Interrupt(std::function<void(int signal)> act, bool hangup = false);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

 private:
  std::thread thread_;
  std::atomic<bool> ending_{false};
};

}  // namespace quern
