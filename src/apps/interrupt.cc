#include "apps/interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <utility>

namespace quern {

Interrupt::Interrupt(std::function<void(int)> act, bool hangup) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  if (hangup) sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  thread_ = std::thread([this, signals, act = std::move(act)] {
    int number = 0;
    while (sigwait(&signals, &number) == 0 && !ending_) act(number);
  });
}

Interrupt::~Interrupt() {
  ending_ = true;
  pthread_kill(thread_.native_handle(), SIGTERM);
  thread_.join();
}

}  // namespace quern
