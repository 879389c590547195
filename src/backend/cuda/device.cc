// A CUDA GPU as a device: its memory, one stream as its queue, pinned memory for what crosses, and captured graphs.
#include "tensor/device.h"

#include <array>
#include <atomic>
#include <cstring>
#include <cuda_runtime.h>
#include <fmt/format.h>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "backend/cuda/blas.h"
#include "backend/cuda/held.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/nvml.h"
#include "base/channel.h"
#include "base/clock.h"

namespace quern {
namespace cuda {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw DeviceLost{fmt::format("the GPU failed ({}): {}", what, cudaGetErrorString(status))};
}

namespace {

constexpr int64_t slot_bytes = int64_t{4} << 20;
constexpr int slots = 16;
constexpr int64_t workspace_bytes = int64_t{32} << 20;
constexpr size_t marks = 64;     // more than steps can be in flight
constexpr int64_t spin_us = 50;  // a wait that is nearly over is not worth a sleep

std::string gibibytes(int64_t bytes) { return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30)); }

/// Zeros that are there on return. No stream of ours waits for the one that writes them: on a busy GPU they would come
/// after what is uploaded next.
void clear(void* memory, int64_t bytes) {
  check(cudaMemset(memory, 0, static_cast<size_t>(bytes)), "memory");
  check(cudaStreamSynchronize(cudaStreamLegacy), "memory");
}

class CapturedGraph final : public Captured {
 public:
  CapturedGraph(cudaGraphExec_t graph, Queue queue) : graph_(graph), queue_(queue) {}
  ~CapturedGraph() override { cudaGraphExecDestroy(graph_); }
  void launch() override {
    launch_held(queue_);
    check(cudaGraphLaunch(graph_, native(queue_).stream), "launch of a captured step");
  }

 private:
  cudaGraphExec_t graph_;
  Queue queue_;
};

class EventLaps final : public Laps {
 public:
  explicit EventLaps(Queue queue) : queue_(queue), stream_(native(queue).stream) {}
  ~EventLaps() override {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }

  void mark() override {
    launch_held(queue_);
    if (used_ == events_.size()) check(cudaEventCreate(&events_.emplace_back()), "event");
    check(cudaEventRecord(events_[used_++], stream_), "event");
  }
  std::vector<double> seconds() override {
    check(cudaStreamSynchronize(stream_), "computing");
    std::vector<double> all;
    for (size_t i = 1; i < used_; ++i) {
      float ms = 0.0F;
      check(cudaEventElapsedTime(&ms, events_[i - 1], events_[i]), "event");
      all.push_back(1e-3 * static_cast<double>(ms));
    }
    used_ = 0;
    return all;
  }

 private:
  Queue queue_;
  cudaStream_t stream_;
  std::vector<cudaEvent_t> events_;  // made once, then used again
  size_t used_ = 0;
};

/// Thread: executor; upload() and capture() any. The mutex guards the list of blocks, which loading threads read.
class CudaDevice final : public Device {
 public:
  CudaDevice(int index, const cudaDeviceProp& properties, bool batch_invariant)
      : index_(index), properties_(properties), batch_invariant_(batch_invariant) {}

  /// An error instead of an exception while the device is made.
  Status open() {
    try {
      check(cudaSetDevice(index_), "choosing it");
      check(cudaDeviceSetCacheConfig(cudaFuncCachePreferShared), "cache");  // for kernels that say nothing: launch.h
      check(cudaStreamCreateWithFlags(&queue_.stream, cudaStreamNonBlocking), "stream");
      for (cudaEvent_t& event : events_) {
        check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync), "event");
      }
      void* workspace = nullptr;
      constexpr int64_t arrival_bytes = max_arrivals * sizeof(unsigned);
      check(cudaMalloc(&workspace, workspace_bytes + arrival_bytes), "workspace");
      clear(static_cast<std::byte*>(workspace) + workspace_bytes, arrival_bytes);
      queue_.workspace = static_cast<std::byte*>(workspace);
    } catch (const DeviceLost& lost) {
      return Error{lost.reason};
    }
    queue_.workspace_bytes = workspace_bytes;
    queue_.arrivals = reinterpret_cast<unsigned*>(queue_.workspace + workspace_bytes);
    queue_.multiprocessors = properties_.multiProcessorCount;
    blas_ = open_blas();
    nvml_ = open_nvml(index_);
    queue_.blas = blas_.get();
    queue_.held = &held_;
    return {};
  }

  ~CudaDevice() override {
    cudaDeviceSynchronize();
    for (Slot& slot : slots_) {
      if (slot.memory != nullptr) cudaFreeHost(slot.memory);
      if (slot.stream != nullptr) cudaStreamDestroy(slot.stream);
    }
    for (const auto& [memory, block] : blocks_) free_block(memory, block);
    for (cudaEvent_t event : events_) {
      if (event != nullptr) cudaEventDestroy(event);
    }
    cudaFree(queue_.workspace);
    blas_.reset();
    if (queue_.stream != nullptr) cudaStreamDestroy(queue_.stream);
  }

  DeviceKind kind() const override { return DeviceKind::cuda; }
  std::string description() const override {
    return fmt::format("{}, {} multiprocessors, {}, {}", properties_.name, properties_.multiProcessorCount,
                       gibibytes(static_cast<int64_t>(properties_.totalGlobalMem)),
                       blas_ ? "with cuBLASLt" : "without cuBLASLt");
  }
  bool host_addressable() const override { return false; }
  Queue queue() override { return {DeviceKind::cuda, &queue_, batch_invariant_}; }

  Result<std::byte*> allocate(int64_t bytes) override {
    void* memory = nullptr;
    if (cudaMalloc(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1))) != cudaSuccess) {
      cudaGetLastError();
      return Error{
          fmt::format("not enough GPU memory: {} are needed, {} are free", gibibytes(bytes), gibibytes(free_bytes()))};
    }
    try {
      clear(memory, bytes);
    } catch (const DeviceLost& lost) {
      cudaFree(memory);
      return Error{lost.reason};
    }
    return keep(memory, bytes, false);
  }

  Result<std::byte*> allocate_host(int64_t bytes) override {
    void* memory = nullptr;
    if (cudaHostAlloc(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1)), cudaHostAllocDefault) != cudaSuccess) {
      cudaGetLastError();
      return Error{fmt::format("cannot pin {} of host memory", gibibytes(bytes))};
    }
    std::memset(memory, 0, static_cast<size_t>(bytes));
    return keep(memory, bytes, true);
  }

  void release(std::byte* memory) override {
    const std::lock_guard lock(mutex_);
    const auto it = blocks_.find(memory);
    CHECK(it != blocks_.end());
    if (!it->second.host) allocated_ -= it->second.bytes;
    free_block(it->first, it->second);
    blocks_.erase(it);
  }

  int64_t allocated_bytes() const override { return allocated_; }
  int64_t free_bytes() const override {
    size_t free = 0;
    size_t total = 0;
    cudaMemGetInfo(&free, &total);
    return static_cast<int64_t>(free);
  }

  void copy_in(std::byte* to, const std::byte* from, int64_t bytes) override {
    launch_held(queue());
    check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, queue_.stream), "copy to it");
  }
  void copy_out(std::byte* to, const std::byte* from, int64_t bytes) override {
    launch_held(queue());
    check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, queue_.stream), "copy from it");
  }
  void wait() override {
    launch_held(queue());
    check(cudaStreamSynchronize(queue_.stream), "computing");
  }

  void upload(std::byte* to, const std::byte* from, int64_t bytes) override {
    std::call_once(slots_made_, [this] { make_slots(); });
    check(cudaSetDevice(index_), "choosing it");
    const int number = *free_slots_.receive();
    const Slot& slot = slots_[static_cast<size_t>(number)];
    for (int64_t done = 0; done < bytes; done += slot_bytes) {
      const auto part = static_cast<size_t>(std::min(slot_bytes, bytes - done));
      std::memcpy(slot.memory, from + done, part);
      check(cudaMemcpyAsync(to + done, slot.memory, part, cudaMemcpyHostToDevice, slot.stream), "upload");
      check(cudaStreamSynchronize(slot.stream), "upload");
    }
    free_slots_.try_send(int{number});
  }

  QueueMark mark() override {
    launch_held(queue());
    const QueueMark made = next_mark_++;
    check(cudaEventRecord(events_[made % marks], queue_.stream), "event");
    return made;
  }
  bool done(QueueMark mark) override {
    CHECK(mark + marks >= next_mark_);
    const cudaError_t status = cudaEventQuery(events_[mark % marks]);
    if (status == cudaErrorNotReady) return false;
    check(status, "computing");
    return true;
  }
  void wait_for(QueueMark mark) override {
    const int64_t start = now_us();
    while (!done(mark)) {
      if (now_us() - start < spin_us) continue;
      return check(cudaEventSynchronize(events_[mark % marks]), "computing");
    }
  }
  std::unique_ptr<Laps> make_laps() override { return std::make_unique<EventLaps>(queue()); }

  std::unique_ptr<Captured> capture(const std::function<void(Queue)>& work) override {
    check(cudaSetDevice(index_), "choosing it");
    const int64_t start = now_us();
    const int64_t free_before = free_bytes();
    CudaQueue recording = queue_;
    Held held;
    recording.held = &held;
    check(cudaStreamCreateWithFlags(&recording.stream, cudaStreamNonBlocking), "stream");
    check(cudaStreamBeginCapture(recording.stream, cudaStreamCaptureModeThreadLocal), "capture");
    const Queue queue{DeviceKind::cuda, &recording, batch_invariant_};
    work(queue);
    launch_held(queue);
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(recording.stream, &graph), "capture");
    cudaGraphExec_t executable = nullptr;
    check(cudaGraphInstantiate(&executable, graph, 0), "capture");
    cudaGraphDestroy(graph);
    check(cudaGraphUpload(executable, recording.stream), "capture");
    check(cudaStreamSynchronize(recording.stream), "capture");
    cudaStreamDestroy(recording.stream);
    captures_.fetch_add(1);
    capture_us_.fetch_add(now_us() - start);
    captured_bytes_.fetch_add(free_before - free_bytes());
    return std::make_unique<CapturedGraph>(executable, this->queue());
  }

  std::vector<DeviceReading> readings() override {
    std::vector<DeviceReading> all;
    const GpuReadings now = nvml_ ? nvml_->read() : GpuReadings{};
    const auto add = [&](std::string_view name, std::string_view help, auto value) {
      if (value) all.push_back({name, help, static_cast<double>(*value)});
    };
    add("quern:gpu_utilization", "Share of the last moment in which the GPU ran a kernel.", now.utilization);
    add("quern:gpu_power_watts", "Power that the GPU draws.", now.power_watts);
    add("quern:gpu_temperature_celsius", "Temperature of the GPU.", now.temperature_celsius);
    add("quern:gpu_sm_clock_hertz", "Clock of the GPU's multiprocessors.", now.sm_clock_hz);
    add("quern:gpu_memory_used_bytes", "GPU memory in use by all processes.", now.memory_used_bytes);
    const auto captures = captures_.load();
    all.push_back({"quern:gpu_captured_steps", "Steps that were captured, to be launched as a whole.",
                   static_cast<double>(captures)});
    all.push_back({"quern:gpu_capture_seconds", "Time that this took, beside the steps.",
                   1e-6 * static_cast<double>(capture_us_.load())});
    all.push_back({"quern:gpu_captured_bytes", "GPU memory that captured steps hold.",
                   static_cast<double>(captured_bytes_.load())});
    return all;
  }

 private:
  struct Block {
    int64_t bytes = 0;
    bool host = false;
  };
  /// Pinned memory on the way to the GPU.
  struct Slot {
    void* memory = nullptr;
    cudaStream_t stream = nullptr;
  };

  static void free_block(std::byte* memory, const Block& block) {
    if (block.host) {
      cudaFreeHost(memory);
    } else {
      cudaFree(memory);
    }
  }

  std::byte* keep(void* memory, int64_t bytes, bool host) {
    const std::lock_guard lock(mutex_);
    auto* const block = static_cast<std::byte*>(memory);
    blocks_.emplace(block, Block{bytes, host});
    if (!host) allocated_ += bytes;
    return block;
  }

  void make_slots() {
    check(cudaSetDevice(index_), "choosing it");
    for (int i = 0; i < slots; ++i) {
      Slot& slot = slots_[static_cast<size_t>(i)];
      check(cudaHostAlloc(&slot.memory, slot_bytes, cudaHostAllocDefault), "pinned memory");
      check(cudaStreamCreateWithFlags(&slot.stream, cudaStreamNonBlocking), "stream");
      free_slots_.try_send(int{i});
    }
  }

  int index_;
  cudaDeviceProp properties_;
  bool batch_invariant_;
  CudaQueue queue_;
  Held held_;
  std::unique_ptr<Blas> blas_;
  std::unique_ptr<Nvml> nvml_;
  std::array<cudaEvent_t, marks> events_{};
  QueueMark next_mark_ = 0;
  std::atomic<int64_t> captures_ = 0;
  std::atomic<int64_t> capture_us_ = 0;
  std::atomic<int64_t> captured_bytes_ = 0;
  std::mutex mutex_;
  std::unordered_map<std::byte*, Block> blocks_;
  int64_t allocated_ = 0;
  std::once_flag slots_made_;
  std::array<Slot, slots> slots_{};
  Channel<int> free_slots_;
};

Result<std::unique_ptr<Device>> make(const DeviceOptions& options) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver || status == cudaErrorSystemDriverMismatch) {
    return Error{"the NVIDIA driver is missing or older than this build of quern needs (580, CUDA 13)"};
  }
  if (status != cudaSuccess || count == 0) return Error{"there is no NVIDIA GPU that this process may use"};
  if (options.index >= count) return Error{fmt::format("GPU {} was asked for, but there are {}", options.index, count)};
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, options.index) != cudaSuccess) return Error{"the GPU does not answer"};
  if (!runs_kernels()) {
    return Error{fmt::format("this build of quern has no kernels for {} (compute capability {}.{})", properties.name,
                             properties.major, properties.minor)};
  }
  auto device = std::make_unique<CudaDevice>(options.index, properties, options.batch_invariant);
  TRY(device->open());
  return std::unique_ptr<Device>(std::move(device));
}

const bool added = register_device(DeviceKind::cuda, make);

}  // namespace
}  // namespace cuda
}  // namespace quern
