#include <algorithm>

#include "ops/gated.h"
#include "ops/gpu_testing.h"

namespace quern::testing {
namespace {

using GatedGpu = OnGpu;

double activated(double x, double up, Activation activation) {
  switch (activation) {
    case Activation::silu: return x / (1 + std::exp(-x)) * up;
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x))) * up;
    case Activation::gelu_erf: return 0.5 * x * std::erfc(-x / std::sqrt(2.0)) * up;
    case Activation::relu: return std::max(x, 0.0) * up;
    case Activation::clamped_swiglu:
      x = std::min(x, 7.0);
      return x / (1 + std::exp(-1.702 * x)) * (std::clamp(up, -7.0, 7.0) + 1);
  }
  return 0;
}

TEST_F(GatedGpu, AgreesWithADoubleReferenceForEveryType) {
  for (const Dtype type : activation_types) {
    for (const Activation activation : {Activation::silu, Activation::gelu_tanh, Activation::gelu_erf, Activation::relu,
                                        Activation::clamped_swiglu}) {
      for (const int32_t hidden : {8, 13, 1536, 2056, 14336}) {
        for (const int32_t padding : {8, 3}) {
          TestDevice device;
          Exec exec = device.exec();
          exec.activations = type;
          FloatMatrix x = FloatMatrix::random(type, 3, 2 * hidden, padding, 1, 3.0F);

          const Tensor y = gated(exec, x.tensor(), activation);

          ASSERT_EQ(y.dtype, type);
          for (int32_t row = 0; row < 3; ++row) {
            for (int32_t i = 0; i < hidden; ++i) {
              const double up = x.get(row, hidden + i);
              const double expected = activated(x.get(row, i), up, activation);
              ASSERT_NEAR(float_at(y, row, i), expected,
                          (rounding(type) + 1e-6) * std::abs(expected) + 1e-6 * std::abs(up) + 6e-8)
                  << dtype_name(type) << " " << hidden << " column " << i;
            }
          }
        }
      }
    }
  }
}

TEST_F(GatedGpu, HalfTypesSaturateAndKeepNaN) {
  for (const Dtype type : {Dtype::f16, Dtype::bf16}) {
    TestDevice device;
    Exec exec = device.exec();
    exec.activations = type;
    FloatMatrix x(type, 1, 6, 2);
    const std::vector<float> gates{-1000.0F, 1000.0F, std::numeric_limits<float>::quiet_NaN()};
    for (int32_t i = 0; i < 3; ++i) {
      x.set(0, i, gates[static_cast<size_t>(i)]);
      x.set(0, 3 + i, 2.0F);
    }
    for (const Activation activation :
         {Activation::silu, Activation::gelu_tanh, Activation::gelu_erf, Activation::relu}) {
      const Tensor y = gated(exec, x.tensor(), activation);

      EXPECT_EQ(float_at(y, 0, 0), 0.0);
      EXPECT_EQ(float_at(y, 0, 1), 2000.0);
      EXPECT_TRUE(std::isnan(float_at(y, 0, 2)));
    }
  }
}

}  // namespace
}  // namespace quern::testing
