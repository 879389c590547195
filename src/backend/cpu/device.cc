// The CPU as a device: anonymous memory in huge pages, and a team of threads as its queue.
#include "tensor/device.h"

#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <unordered_map>

#include "base/thread_pool.h"
#include "ops/kernel.h"

namespace quern {
namespace {

constexpr int64_t huge_page = int64_t{2} << 20;

/// Memory that could be taken without swapping: what the machine has free, or what the control group leaves.
int64_t available_memory() {
  int64_t available = int64_t{sysconf(_SC_AVPHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  std::string unit;
  int64_t kilobytes = 0;
  while (meminfo >> key >> kilobytes && std::getline(meminfo, unit)) {
    if (key == "MemAvailable:") available = kilobytes * 1024;
  }
  int64_t limit = 0;
  int64_t used = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit && std::ifstream("/sys/fs/cgroup/memory.current") >> used &&
      limit - used < available) {
    available = limit - used;
  }
  return available > 0 ? available : 0;
}

/// Models of one process share a team of that size: more threads than cores would only wait for each other.
std::shared_ptr<ThreadPool> team_of(int threads) {
  static std::mutex mutex;  // devices are made on any thread
  static std::map<int, std::weak_ptr<ThreadPool>> teams;
  const std::lock_guard lock(mutex);
  std::weak_ptr<ThreadPool>& known = teams[threads];
  std::shared_ptr<ThreadPool> team = known.lock();
  if (!team) known = team = std::make_shared<ThreadPool>(threads);
  return team;
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads) : team_(team_of(threads)) {}
  ~CpuDevice() override {
    for (const auto& [memory, bytes] : blocks_) munmap(memory, static_cast<size_t>(bytes));
  }

  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string description() const override {
    return fmt::format("CPU, {} threads, {}", team_->size(), isa_name(isa_in_force()));
  }
  bool host_addressable() const override { return true; }
  Queue queue() override { return {DeviceKind::cpu, team_.get()}; }

  Result<std::byte*> allocate(int64_t bytes) override {
    const int64_t rounded = bytes >= huge_page ? (bytes + huge_page - 1) / huge_page * huge_page : bytes + 1;
    const int64_t free = available_memory();
    if (rounded > free) {
      return Error{fmt::format("not enough memory: {:.1f} MiB are needed, {:.1f} MiB are free",
                               static_cast<double>(rounded) / (1 << 20), static_cast<double>(free) / (1 << 20))};
    }
    void* memory =
        mmap(nullptr, static_cast<size_t>(rounded), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return Error{fmt::format("cannot allocate {} bytes: {}", bytes, std::strerror(errno))};
    if (rounded >= huge_page) madvise(memory, static_cast<size_t>(rounded), MADV_HUGEPAGE);
    blocks_.emplace(static_cast<std::byte*>(memory), rounded);
    allocated_ += rounded;
    return static_cast<std::byte*>(memory);
  }

  void release(std::byte* memory) override {
    const auto it = blocks_.find(memory);
    CHECK(it != blocks_.end());
    munmap(memory, static_cast<size_t>(it->second));
    allocated_ -= it->second;
    blocks_.erase(it);
  }

  int64_t allocated_bytes() const override { return allocated_; }
  int64_t free_bytes() const override { return available_memory(); }

  void copy_in(std::byte* to, const std::byte* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void copy_out(std::byte* to, const std::byte* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void wait() override {}
  void upload(std::byte* to, const std::byte* from, int64_t bytes) override { copy_in(to, from, bytes); }
  Result<std::byte*> allocate_host(int64_t bytes) override { return allocate(bytes); }

  // Everything is computed when the call returns.
  QueueMark mark() override { return 0; }
  bool done(QueueMark /*mark*/) override { return true; }
  void wait_for(QueueMark /*mark*/) override {}
  std::unique_ptr<Captured> capture(const std::function<void(Queue)>& /*work*/) override { return nullptr; }

 private:
  const std::shared_ptr<ThreadPool> team_;
  std::unordered_map<std::byte*, int64_t> blocks_;
  int64_t allocated_ = 0;
};

Result<std::unique_ptr<Device>> make_cpu(const DeviceOptions& options) {
  const int threads = options.threads > 0 ? options.threads : usable_cores();
  return std::unique_ptr<Device>(std::make_unique<CpuDevice>(threads));
}

const bool added = register_device(DeviceKind::cpu, make_cpu);

}  // namespace
}  // namespace quern
