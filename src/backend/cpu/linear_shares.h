// Shares: work given out so that every worker reads its own stretch of memory in order, and helps others at the end.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/thread_pool.h"

namespace quern::QUERN_ISA::panels {

/// Calls body(begin, end) for disjoint ranges that cover [0, count), in pieces of `grain`.
template <typename Body>
void share_out(ThreadPool& pool, int64_t count, int64_t grain, Body&& body) {
  if (count <= grain || pool.size() == 1) {
    if (count > 0) body(int64_t{0}, count);
    return;
  }
  struct alignas(64) Share {
    std::atomic<int64_t> next;
    int64_t end;
  };
  constexpr int most_shares = 64;
  Share shares[most_shares];
  const int share_count = pool.size() < most_shares ? pool.size() : most_shares;
  for (int i = 0; i < share_count; ++i) {
    shares[i].next.store(count * i / share_count, std::memory_order_relaxed);
    shares[i].end = count * (i + 1) / share_count;
  }
  pool.run([&](int worker) {
    for (int i = 0; i < share_count; ++i) {
      Share& share = shares[(worker + i) % share_count];
      while (true) {
        const int64_t begin = share.next.fetch_add(grain, std::memory_order_relaxed);
        if (begin >= share.end) break;
        body(begin, begin + grain < share.end ? begin + grain : share.end);
      }
    }
  });
}

}  // namespace quern::QUERN_ISA::panels
