// ThreadPool: a fixed team that runs one parallel region at a time. Thread: the one that created it calls run().
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace quern {

/// Waiting is spin-then-futex: a region starts within a microsecond while work keeps coming, and an idle team uses no
/// CPU.
class ThreadPool {
 public:
  /// `threads` workers, of which number 0 is the thread that calls run().
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }

  /// Calls body(worker) on every worker and returns when all are done.
  template <typename Body>
  void run(Body&& body) {
    using Callable = std::remove_reference_t<Body>;
    run_erased([](void* object, int worker) { (*static_cast<Callable*>(object))(worker); },
               const_cast<void*>(static_cast<const void*>(&body)));
  }

  /// Calls body(begin, end) for disjoint ranges that cover [0, count), in pieces of `grain`, handed out as workers get
  /// free.
  template <typename Body>
  void parallel_for(int64_t count, int64_t grain, Body&& body) {
    if (count <= grain || size_ == 1) {
      if (count > 0) body(int64_t{0}, count);
      return;
    }
    reset_tickets();
    run([&](int) {
      for (int64_t begin = next_ticket() * grain; begin < count; begin = next_ticket() * grain) {
        body(begin, begin + grain < count ? begin + grain : count);
      }
    });
  }

  /// Inside run(): waits until every worker of the region is here.
  void barrier();

 private:
  void run_erased(void (*call)(void*, int), void* object);
  void reset_tickets();
  int64_t next_ticket();

  struct State;
  int size_;
  std::unique_ptr<State> state_;
};

/// Physical cores this process may use: the default number of workers.
int usable_cores();

}  // namespace quern
