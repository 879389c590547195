// What the tests of operations share: a CPU to run on at every instruction-set level, memory, and random values.
#pragma once

#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "ops/exec.h"
#include "ops/kernel.h"
#include "tensor/arena.h"
#include "tensor/tensor.h"

namespace quern {

/// A team of threads and an arena full of NaNs.
class TestDevice {
 public:
  explicit TestDevice(int threads = 2, int64_t arena_bytes = 16 << 20)
      : pool_(threads), memory_(static_cast<size_t>(arena_bytes / 4) + 16, std::numeric_limits<float>::quiet_NaN()) {}

  Exec exec() { return Exec{{DeviceKind::cpu, &pool_}, arena_}; }

 private:
  std::byte* aligned() {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    return reinterpret_cast<std::byte*>((address + 63) / 64 * 64);
  }

  ThreadPool pool_;
  std::vector<float> memory_;
  Arena arena_{aligned(), static_cast<int64_t>(memory_.size() - 16) * 4};
};

/// Calls body() at every level this processor runs, and returns to the best one.
template <typename Body>
void at_every_isa(Body&& body) {
  const Isa before = isa_in_force();
  for (int level = 0; level <= static_cast<int>(before); ++level) {
    if (!limit_isa(static_cast<Isa>(level))) continue;
    SCOPED_TRACE(isa_name(static_cast<Isa>(level)));
    body();
  }
  limit_isa(before);
}

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
