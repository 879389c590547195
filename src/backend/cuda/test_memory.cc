// In test programs on a machine with a GPU, memory from `new` is pinned, so that kernels read and write the vectors
// that tests use for the CPU. One block of address space, cut into powers of two. What does not fit comes from malloc,
// where no kernel finds it.
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <mutex>
#include <new>

namespace {

constexpr size_t pool_bytes = size_t{6} << 30;
constexpr size_t smallest = 64;

struct Pool {
  std::mutex mutex;
  std::byte* begin = nullptr;
  size_t used = 0;
  bool opened = false;
  bool told = false;  // that it is used up
  std::array<void*, 64> free_lists{};

  void open() {
    opened = true;
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return;
    void* memory = nullptr;
    if (cudaHostAlloc(&memory, pool_bytes, cudaHostAllocDefault) == cudaSuccess)
      begin = static_cast<std::byte*>(memory);
  }
  bool holds(const void* memory) const { return begin != nullptr && memory >= begin && memory < begin + pool_bytes; }
};

Pool& pool() {
  static Pool* const made = new (std::malloc(sizeof(Pool))) Pool;
  return *made;
}

thread_local bool opening = false;  // the driver allocates too

void* take(size_t bytes) {
  Pool& p = pool();
  if (!opening) {
    const std::lock_guard lock(p.mutex);
    if (!p.opened) {
      opening = true;
      p.open();
      opening = false;
    }
    const size_t size = std::bit_ceil(bytes < smallest - 16 ? smallest : bytes + 16);
    const auto list = static_cast<size_t>(std::countr_zero(size));
    std::byte* block = nullptr;
    if (p.free_lists[list] != nullptr) {
      block = static_cast<std::byte*>(p.free_lists[list]);
      p.free_lists[list] = *reinterpret_cast<void**>(block);
    } else if (p.begin != nullptr && p.used + size <= pool_bytes) {
      block = p.begin + p.used;
      p.used += size;
    }
    if (block != nullptr) {
      *reinterpret_cast<size_t*>(block) = list;
      return block + 16;
    }
    if (p.begin != nullptr && !p.told) {
      p.told = true;
      std::fputs("test memory that kernels find is used up: run fewer tests at once\n", stderr);
    }
  }
  void* memory = std::malloc(bytes + 16);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void give(void* memory) noexcept {
  Pool& p = pool();
  if (!p.holds(memory)) return std::free(memory);
  std::byte* const block = static_cast<std::byte*>(memory) - 16;
  const std::lock_guard lock(p.mutex);
  const size_t list = *reinterpret_cast<size_t*>(block);
  *reinterpret_cast<void**>(block) = p.free_lists[list];
  p.free_lists[list] = block;
}

}  // namespace

void* operator new(size_t bytes) { return take(bytes); }
void* operator new[](size_t bytes) { return take(bytes); }
void operator delete(void* memory) noexcept { give(memory); }
void operator delete[](void* memory) noexcept { give(memory); }
void operator delete(void* memory, size_t /*bytes*/) noexcept { give(memory); }
void operator delete[](void* memory, size_t /*bytes*/) noexcept { give(memory); }
