#include "ops/activate.h"

#include <algorithm>

#include "ops/gpu_testing.h"

namespace quern::testing {
namespace {

double activated(double x, Activation activation) {
  switch (activation) {
    case Activation::silu: return x / (1 + std::exp(-x));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case Activation::gelu_erf: return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::relu: return std::max(x, 0.0);
    case Activation::clamped_swiglu: break;  // has no form without a gate
  }
  return 0;
}

constexpr Activation all_activations[] = {Activation::silu, Activation::gelu_tanh, Activation::gelu_erf,
                                          Activation::relu};

void expect_reference(Dtype type, Activation activation, int32_t hidden, int32_t padding) {
  TestDevice device;
  Exec exec = device.exec();
  exec.activations = type;
  FloatMatrix x = FloatMatrix::random(type, 9, hidden, padding, 1, 4.0F);
  FloatMatrix before = x;

  activate(exec, x.tensor(), activation);

  for (int32_t row = 0; row < 9; ++row) {
    for (int32_t i = 0; i < hidden; ++i) {
      const double expected = activated(before.get(row, i), activation);
      ASSERT_NEAR(x.get(row, i), expected, (1e-6 + rounding(type)) * std::abs(expected) + 1e-6);
    }
  }
}

TEST(Activate, AgreesWithADoubleReference) {
  at_every_isa([] {
    for (const Activation activation : all_activations) {
      for (const int32_t hidden : {1, 13, 1536, 2050}) expect_reference(Dtype::f32, activation, hidden, 3);
    }
  });
}

TEST(Activate, SaturatesAndKeepsNaN) {
  at_every_isa([] {
    for (const Activation activation : all_activations) {
      TestDevice device;
      Exec exec = device.exec();
      std::vector<float> values = {-1000.0F, 1000.0F, std::numeric_limits<float>::quiet_NaN()};
      const Tensor x = Tensor::dense(reinterpret_cast<std::byte*>(values.data()), Dtype::f32, 1, 3);

      activate(exec, x, activation);

      EXPECT_EQ(values[0], 0.0F);
      EXPECT_EQ(values[1], 1000.0F);
      EXPECT_TRUE(std::isnan(values[2]));
    }
  });
}

using ActivateGpu = OnGpu;

TEST_F(ActivateGpu, TakesEveryTypeAndAlignment) {
  for (const Dtype type : activation_types) {
    for (const Activation activation : all_activations) {
      for (const int32_t padding : {8, 3}) expect_reference(type, activation, 1536, padding);
    }
  }
}

}  // namespace
}  // namespace quern::testing
