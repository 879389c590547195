#include "base/thread_pool.h"

#include <atomic>
#include <climits>
#include <fstream>
#include <linux/futex.h>
#include <mutex>
#include <sched.h>
#include <set>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/check.h"

namespace quern {
namespace {

constexpr int spin_rounds = 20000;  // about 100 us: longer than the gaps between the regions of one step

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// A number that threads wait on to change.
class Gate {
 public:
  uint32_t load() const { return value_.load(std::memory_order_acquire); }
  void bump() {
    value_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) {
      syscall(SYS_futex, reinterpret_cast<uint32_t*>(&value_), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
    }
  }
  void wait_change(uint32_t seen) {
    for (int i = 0; i < spin_rounds; ++i) {
      if (load() != seen) return;
      pause_cpu();
    }
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    while (value_.load(std::memory_order_seq_cst) == seen) {
      syscall(SYS_futex, reinterpret_cast<uint32_t*>(&value_), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
    }
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }

 private:
  std::atomic<uint32_t> value_{0};
  std::atomic<int> sleepers_{0};
};

/// The first word of a file of the kernel, empty when there is none.
std::string small_file(const std::string& path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

/// Who is in a region: a number of the region, whether it is closed, and how many workers have entered it.
class Entrance {
 public:
  void open(uint32_t region) { word_.store(uint64_t{region} << 32, std::memory_order_release); }
  bool enter(uint32_t region) {
    uint64_t word = word_.load(std::memory_order_relaxed);
    while (word >> 32 == region && (word & closed) == 0) {
      if (word_.compare_exchange_weak(word, word + 1, std::memory_order_acquire, std::memory_order_relaxed))
        return true;
    }
    return false;
  }
  /// From here on nobody enters. Returns how many did.
  int close() { return static_cast<int>(word_.fetch_or(closed, std::memory_order_relaxed) & (closed - 1)); }

 private:
  static constexpr uint64_t closed = uint64_t{1} << 31;
  std::atomic<uint64_t> word_{closed};
};

}  // namespace

struct ThreadPool::State {
  std::mutex region;       // held by whose region runs
  alignas(64) Gate start;  // counts regions
  alignas(64) Entrance entrance;
  alignas(64) Gate left;   // counts workers that have left, over all regions
  alignas(64) Gate phase;  // of the barrier
  alignas(64) std::atomic<int> arrived{0};
  void (*call)(void*, int) = nullptr;
  void* object = nullptr;
  uint32_t expected = 0;  // what `left` counts to when nobody is in a region
  std::atomic<bool> stopping = false;
  std::vector<std::thread> threads;
};

ThreadPool::ThreadPool(int threads) : size_(threads), state_(std::make_unique<State>()) {
  CHECK(threads >= 1);
  for (int worker = 1; worker < threads; ++worker) state_->threads.emplace_back([this, worker] { work(worker); });
}

ThreadPool::~ThreadPool() {
  state_->stopping = true;
  state_->start.bump();
  for (std::thread& thread : state_->threads) thread.join();
}

void ThreadPool::work(int worker) {
  uint32_t seen = 0;
  while (true) {
    state_->start.wait_change(seen);
    seen = state_->start.load();
    if (state_->stopping) return;
    if (!state_->entrance.enter(seen)) continue;
    state_->call(state_->object, worker);
    state_->left.bump();
  }
}

void ThreadPool::run_erased(void (*call)(void*, int), void* object, Workers workers) {
  if (size_ == 1) return call(object, 0);
  const std::lock_guard turn(state_->region);
  state_->call = call;
  state_->object = object;
  state_->entrance.open(state_->start.load() + 1);
  state_->start.bump();
  call(object, 0);
  uint32_t left = state_->left.load();
  const int entered = workers == Workers::all ? size_ - 1 : state_->entrance.close();
  state_->expected += static_cast<uint32_t>(entered);
  while (left != state_->expected) {
    state_->left.wait_change(left);
    left = state_->left.load();
  }
  state_->entrance.close();
}

void ThreadPool::barrier() {
  if (size_ == 1) return;
  const uint32_t seen = state_->phase.load();
  if (state_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
    state_->arrived.store(0, std::memory_order_relaxed);
    state_->phase.bump();
  } else {
    state_->phase.wait_change(seen);
  }
}

int usable_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  std::set<std::pair<std::string, std::string>> cores;  // hyper-threads share one
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const std::string topology = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    const std::string package = small_file(topology + "physical_package_id");
    const std::string core = small_file(topology + "core_id");
    cores.emplace(package, core.empty() ? std::to_string(cpu) : core);
  }
  return cores.empty() ? 1 : static_cast<int>(cores.size());
}

}  // namespace quern
