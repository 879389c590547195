#include "text/constraint/budget.h"

#include <cstdlib>
#include <ctime>
#include <limits>
#include <malloc.h>
#include <new>

#include "base/check.h"

namespace quern {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
// Small allocations are never refused: most of them are made where objects are half built or nothing may be thrown.
// What grows without bound does so in large ones.
constexpr size_t kLeastRefused = 1024;
constexpr int kAllocationsPerLook = 16;
// After a refusal the stack is unwound, which may allocate a little.
constexpr int64_t kGraceAllocations = 4096;

/// Of one thread.
struct Account {
  bool open = false;
  AllocationBudget::Spent spent = AllocationBudget::Spent::nothing;
  int64_t bytes_left = 0;
  int64_t end_ns = 0;
  int64_t grace = 0;
  int until_look = 0;
};

// The tests of sanitizers allocate before main, so there is nothing to construct here.
constinit thread_local Account account;

int64_t cpu_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

/// Whether an allocation of `bytes` is refused.
bool refuses(size_t bytes) {
  using Spent = AllocationBudget::Spent;
  if (account.grace > 0) {
    --account.grace;
    return false;
  }
  if (bytes > static_cast<size_t>(kNever) || account.bytes_left < static_cast<int64_t>(bytes)) {
    account.spent = Spent::bytes;
  } else if (--account.until_look < 0) {
    account.until_look = kAllocationsPerLook;
    if (cpu_ns() < account.end_ns) return false;
    account.spent = Spent::time;
  } else {
    return false;
  }
  account.grace = kGraceAllocations;
  return true;
}

[[maybe_unused]] void* allocate(size_t bytes) {
  if (account.open && bytes >= kLeastRefused && refuses(bytes)) throw std::bad_alloc();
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  if (account.open) account.bytes_left -= static_cast<int64_t>(malloc_usable_size(memory));
  return memory;
}

[[maybe_unused]] void release(void* memory) noexcept {
  if (account.open && memory != nullptr) account.bytes_left += static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

AllocationBudget::AllocationBudget(int64_t bytes, double cpu_s) {
  CHECK(!account.open);
  account = {};
  account.bytes_left = bytes;
  account.end_ns = cpu_ns() + static_cast<int64_t>(cpu_s * 1e9);
  account.open = true;
}

AllocationBudget::~AllocationBudget() { account.open = false; }

AllocationBudget::Spent AllocationBudget::spent() const { return account.spent; }

}  // namespace quern

// ThreadSanitizer's runtime defines these and cannot share them: a budget bounds nothing there. Weak, since a program
// of tests that brings its own memory (backend/cuda/test_memory.cc) goes before, but AddressSanitizer's runtime may
// not.
#if !__has_feature(thread_sanitizer)
#if __has_feature(address_sanitizer)
#define QUERN_REPLACED
#else
#define QUERN_REPLACED __attribute__((weak))
#endif
QUERN_REPLACED void* operator new(size_t bytes) { return quern::allocate(bytes); }
QUERN_REPLACED void* operator new[](size_t bytes) { return quern::allocate(bytes); }
QUERN_REPLACED void operator delete(void* memory) noexcept { quern::release(memory); }
QUERN_REPLACED void operator delete[](void* memory) noexcept { quern::release(memory); }
QUERN_REPLACED void operator delete(void* memory, size_t) noexcept { quern::release(memory); }
QUERN_REPLACED void operator delete[](void* memory, size_t) noexcept { quern::release(memory); }
#undef QUERN_REPLACED
#endif
