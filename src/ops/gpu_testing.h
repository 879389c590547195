// What the tests of operations on a GPU share: matrices of any float type, and where tests run.
#pragma once

#include <cstring>

#include "formats/half.h"
#include "ops/test_device.h"

namespace quern::testing {

/// Tests that only a GPU can run.
class OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_gpu() == nullptr)
      GTEST_SKIP() << "there is no GPU; the test of the same operation without 'Gpu' has the CPU's cases";
    testing_on_gpu() = true;
  }
  void TearDown() override { testing_on_gpu() = false; }
};

inline double float_at(const Tensor& x, int64_t row, int64_t col) {
  const std::byte* const at = x.data + (row * x.strides[0] + col) * dtype_bytes(x.dtype);
  if (x.dtype == Dtype::f32) {
    float value = 0.0F;
    std::memcpy(&value, at, sizeof value);
    return static_cast<double>(value);
  }
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return static_cast<double>(x.dtype == Dtype::f16 ? f16_to_f32(bits) : bf16_to_f32(bits));
}

/// The relative error of rounding to a type.
inline double rounding(Dtype type) { return type == Dtype::f32 ? 0x1p-24 : type == Dtype::f16 ? 0x1p-11 : 0x1p-8; }

/// Rows of a float type `padding` elements apart, the gaps full of NaNs. Rows begin on 16 bytes where the sum of
/// columns and padding is a multiple of 8.
class FloatMatrix {
 public:
  FloatMatrix(Dtype type, int32_t rows, int32_t cols, int32_t padding)
      : type_(type),
        rows_(rows),
        cols_(cols),
        stride_(cols + padding),
        bytes_(static_cast<size_t>(rows) * static_cast<size_t>(stride_) * static_cast<size_t>(dtype_bytes(type)),
               std::byte{0xFF}) {}

  static FloatMatrix random(Dtype type, int32_t rows, int32_t cols, int32_t padding, uint32_t seed,
                            float spread = 1.0F) {
    FloatMatrix result(type, rows, cols, padding);
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal(0.0F, spread);
    for (int32_t row = 0; row < rows; ++row) {
      for (int32_t col = 0; col < cols; ++col) result.set(row, col, normal(generator));
    }
    return result;
  }

  void set(int32_t row, int32_t col, float value) {
    std::byte* const at = bytes_.data() + (row * int64_t{stride_} + col) * dtype_bytes(type_);
    if (type_ == Dtype::f32) {
      std::memcpy(at, &value, sizeof value);
      return;
    }
    const uint16_t bits = type_ == Dtype::f16 ? f32_to_f16(value) : f32_to_bf16(value);
    std::memcpy(at, &bits, sizeof bits);
  }
  double get(int32_t row, int32_t col) { return float_at(tensor(), row, col); }
  Tensor tensor() {
    Tensor view = Tensor::dense(bytes_.data(), type_, rows_, cols_);
    view.strides[0] = stride_;
    return view;
  }

 private:
  Dtype type_;
  int32_t rows_;
  int32_t cols_;
  int32_t stride_;
  std::vector<std::byte> bytes_;
};

inline constexpr Dtype activation_types[] = {Dtype::f32, Dtype::f16, Dtype::bf16};

}  // namespace quern::testing
