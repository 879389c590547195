// ThreadPool: a fixed team that runs one parallel region at a time. Any thread calls run(); several take turns.
#pragma once

#include <atomic>
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
    run_erased(&call_object<std::remove_reference_t<Body>>, const_cast<void*>(static_cast<const void*>(&body)),
               Workers::all);
  }

  /// Calls body(begin, end) for disjoint ranges that cover [0, count), in pieces of `grain`. Every worker begins with a
  /// stretch of its own, reads it in order and then helps the others. Equal counts give equal stretches, so that a
  /// worker finds in its cache what it wrote in the region before. Nobody waits for a worker that has not begun when
  /// all pieces are taken: one that the system runs late costs nothing.
  template <typename Body>
  void parallel_for(int64_t count, int64_t grain, Body&& body) {
    if (count <= grain || size_ == 1) {
      if (count > 0) body(int64_t{0}, count);
      return;
    }
    Share shares[most_shares];
    const int share_count = size_ < most_shares ? size_ : most_shares;
    for (int i = 0; i < share_count; ++i) {
      shares[i].next.store(count * i / share_count, std::memory_order_relaxed);
      shares[i].end = count * (i + 1) / share_count;
    }
    auto take_pieces = [&](int worker) {
      for (int i = 0; i < share_count; ++i) {
        Share& share = shares[(worker + i) % share_count];
        while (true) {
          const int64_t begin = share.next.fetch_add(grain, std::memory_order_relaxed);
          if (begin >= share.end) break;
          body(begin, begin + grain < share.end ? begin + grain : share.end);
        }
      }
    };
    run_erased(&call_object<decltype(take_pieces)>, &take_pieces, Workers::those_in_time);
  }

  /// Inside run(): waits until every worker of the region is here.
  void barrier();

 private:
  enum class Workers { all, those_in_time };
  struct alignas(64) Share {
    std::atomic<int64_t> next;
    int64_t end;
  };
  static constexpr int most_shares = 64;

  template <typename Callable>
  static void call_object(void* object, int worker) {
    (*static_cast<Callable*>(object))(worker);
  }
  void run_erased(void (*call)(void*, int), void* object, Workers workers);
  void work(int worker);

  struct State;
  int size_;
  std::unique_ptr<State> state_;
};

/// Physical cores this process may use: the default number of workers.
int usable_cores();

}  // namespace quern
