// What the tests of operations share: the CPU at every instruction-set level and the GPU if there is one, memory, and
// random values.
#pragma once

#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "ops/exec.h"
#include "ops/kernel.h"
#include "tensor/arena.h"
#include "tensor/device.h"
#include "tensor/tensor.h"

namespace quern {

/// Waits after every kernel, so that a test may read results as soon as an operation returns.
class WaitingTrace final : public Trace {
 public:
  explicit WaitingTrace(Device& device) : device_(device) {}
  void begin(const char* /*kernel*/) override {}
  void end(const char* /*kernel*/) override { device_.wait(); }

 private:
  Device& device_;
};

/// The GPU of the tests, or null. On a machine with one, all memory that `new` gives in a test program is addressed by
/// the GPU too (backend/cuda/test_memory.cc).
inline Device* test_gpu() {
  static const std::unique_ptr<Device> gpu = [] {
    auto made = make_device(DeviceKind::cuda, {});
    return made.ok() ? std::move(*made) : nullptr;
  }();
  return gpu.get();
}

/// Where tests run now; at_every_isa() moves it.
inline bool& testing_on_gpu() {
  static bool on_gpu = false;
  return on_gpu;
}

/// A team of threads or the GPU, and an arena full of NaNs.
class TestDevice {
 public:
  explicit TestDevice(int threads = 2, int64_t arena_bytes = 16 << 20)
      : pool_(threads), memory_(static_cast<size_t>(arena_bytes / 4) + 16, std::numeric_limits<float>::quiet_NaN()) {
    if (testing_on_gpu()) waiting_ = std::make_unique<WaitingTrace>(*test_gpu());
  }

  Exec exec() {
    if (!testing_on_gpu()) return Exec{{DeviceKind::cpu, &pool_}, arena_};
    return Exec{test_gpu()->queue(), arena_, waiting_.get()};
  }

 private:
  std::byte* aligned() {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    return reinterpret_cast<std::byte*>((address + 63) / 64 * 64);
  }

  ThreadPool pool_;
  std::unique_ptr<WaitingTrace> waiting_;
  std::vector<float> memory_;
  Arena arena_{aligned(), static_cast<int64_t>(memory_.size() - 16) * 4};
};

/// Calls body() at every level this processor runs and on the GPU if there is one, and returns to the best level.
template <typename Body>
void at_every_isa(Body&& body) {
  const Isa before = isa_in_force();
  for (int level = 0; level <= static_cast<int>(before); ++level) {
    if (!limit_isa(static_cast<Isa>(level))) continue;
    SCOPED_TRACE(isa_name(static_cast<Isa>(level)));
    body();
  }
  limit_isa(before);
  if (test_gpu() == nullptr) return;
  SCOPED_TRACE("cuda");
  testing_on_gpu() = true;
  body();
  testing_on_gpu() = false;
}
/// The device that tests run on now.
inline DeviceKind test_device_kind() { return testing_on_gpu() ? DeviceKind::cuda : DeviceKind::cpu; }

/// Rows of floats `padding` apart, the gaps full of NaNs.
class TestMatrix {
 public:
  TestMatrix(int32_t rows, int32_t cols, int32_t padding = 3)
      : rows_(rows),
        cols_(cols),
        stride_(cols + padding),
        values_(static_cast<size_t>(rows) * static_cast<size_t>(stride_), std::numeric_limits<float>::quiet_NaN()) {}

  static TestMatrix random(int32_t rows, int32_t cols, uint32_t seed, float spread = 1.0F) {
    TestMatrix result(rows, cols);
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal(0.0F, spread);
    for (int32_t row = 0; row < rows; ++row) {
      for (int32_t col = 0; col < cols; ++col) result.at(row, col) = normal(generator);
    }
    return result;
  }

  float& at(int32_t row, int32_t col) {
    return values_[static_cast<size_t>(row) * static_cast<size_t>(stride_) + static_cast<size_t>(col)];
  }
  double get(int32_t row, int32_t col) { return static_cast<double>(at(row, col)); }
  Tensor tensor() {
    Tensor view = Tensor::dense(reinterpret_cast<std::byte*>(values_.data()), Dtype::f32, rows_, cols_);
    view.strides[0] = stride_;
    return view;
  }
  int32_t rows() const { return rows_; }
  int32_t cols() const { return cols_; }

 private:
  int32_t rows_;
  int32_t cols_;
  int32_t stride_;
  std::vector<float> values_;
};

inline Tensor view(std::vector<int32_t>& values) {
  return Tensor::dense(reinterpret_cast<std::byte*>(values.data()), Dtype::i32, static_cast<int32_t>(values.size()));
}
inline Tensor view(std::vector<float>& values) {
  return Tensor::dense(reinterpret_cast<std::byte*>(values.data()), Dtype::f32, static_cast<int32_t>(values.size()));
}
inline double value_at(const Tensor& x, int64_t row, int64_t col) {
  return static_cast<double>(x.row<float>(row)[col]);
}

}  // namespace quern
