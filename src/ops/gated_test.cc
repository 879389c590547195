#include "ops/gated.h"

#include <algorithm>

#include "ops/test_device.h"

namespace quern {
namespace {

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

TEST(Gated, AgreesWithADoubleReference) {
  at_every_isa([] {
    for (const Activation activation : {Activation::silu, Activation::gelu_tanh, Activation::gelu_erf, Activation::relu,
                                        Activation::clamped_swiglu}) {
      for (const int32_t hidden : {1, 13, 1536, 2050}) {
        TestDevice device;
        Exec exec = device.exec();
        TestMatrix x = TestMatrix::random(9, 2 * hidden, 1, 4.0F);

        const Tensor y = gated(exec, x.tensor(), activation);

        for (int32_t row = 0; row < 9; ++row) {
          for (int32_t i = 0; i < hidden; ++i) {
            const double up = x.get(row, hidden + i);
            const double expected = activated(x.get(row, i), up, activation);
            ASSERT_NEAR(value_at(y, row, i), expected, 1e-6 * std::abs(expected) + 1e-6 * std::abs(up));
          }
        }
      }
    }
  });
}

/// The exponential shows alone in silu of large negative values.
TEST(Gated, IsAccurateOverTheWholeRangeOfTheExponential) {
  at_every_isa([] {
    TestDevice device;
    Exec exec = device.exec();
    constexpr int32_t count = 20001;
    TestMatrix x(1, 2 * count);
    for (int32_t i = 0; i < count; ++i) {
      x.at(0, i) = -86.0F + static_cast<float>(i) * 0.0086F;
      x.at(0, count + i) = 1.0F;
    }

    const Tensor y = gated(exec, x.tensor(), Activation::silu);

    for (int32_t i = 0; i < count; ++i) {
      const double expected = activated(x.get(0, i), 1.0, Activation::silu);
      ASSERT_NEAR(value_at(y, 0, i), expected, 6e-7 * std::abs(expected) + 1e-37) << x.get(0, i);
    }
  });
}

TEST(Gated, SaturatesAndKeepsNaN) {
  at_every_isa([] {
    TestDevice device;
    Exec exec = device.exec();
    TestMatrix x(1, 6);
    const float gates[] = {-1000.0F, 1000.0F, std::numeric_limits<float>::quiet_NaN()};
    for (int32_t i = 0; i < 3; ++i) {
      x.at(0, i) = gates[i];
      x.at(0, 3 + i) = 2.0F;
    }

    for (const Activation activation :
         {Activation::silu, Activation::gelu_tanh, Activation::gelu_erf, Activation::relu}) {
      const Tensor y = gated(exec, x.tensor(), activation);

      EXPECT_EQ(value_at(y, 0, 0), 0.0);
      EXPECT_EQ(value_at(y, 0, 1), 2000.0);
      EXPECT_TRUE(std::isnan(value_at(y, 0, 2)));
    }
  });
}

}  // namespace
}  // namespace quern
