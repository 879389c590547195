#include "ops/modulate.h"

#include "ops/gpu_testing.h"
#include "ops/test_device.h"

namespace quern {
namespace {

constexpr Modulation modulations[] = {Modulation::identity, Modulation::sigmoid, Modulation::silu};

double modulated(double x, double gate, Modulation f) {
  const double sigmoid = 1 / (1 + std::exp(-gate));
  switch (f) {
    case Modulation::identity: return x * gate;
    case Modulation::sigmoid: return x * sigmoid;
    case Modulation::silu: return x * gate * sigmoid;
  }
  return 0;
}

TEST(Modulate, AgreesWithADoubleReference) {
  at_every_isa([] {
    for (const Modulation f : modulations) {
      for (const int32_t columns : {1, 13, 64, 2050}) {
        TestDevice device;
        Exec exec = device.exec();
        TestMatrix x = TestMatrix::random(5, columns, 1, 2.0F);
        TestMatrix before = x;
        TestMatrix gate = TestMatrix::random(5, columns, 2, 4.0F);

        modulate(exec, x.tensor(), gate.tensor(), f);

        for (int32_t row = 0; row < 5; ++row) {
          for (int32_t i = 0; i < columns; ++i) {
            const double expected = modulated(before.get(row, i), gate.get(row, i), f);
            ASSERT_NEAR(x.get(row, i), expected, 1e-6 * std::abs(expected) + 1e-12);
          }
        }
      }
    }
  });
}

TEST(Modulate, SaturatesAndKeepsNaN) {
  at_every_isa([] {
    for (const Modulation f : {Modulation::sigmoid, Modulation::silu}) {
      TestDevice device;
      Exec exec = device.exec();
      TestMatrix x(1, 3);
      TestMatrix gate(1, 3);
      for (int32_t i = 0; i < 3; ++i) x.at(0, i) = 2.0F;
      gate.at(0, 0) = -1000.0F;
      gate.at(0, 1) = 1000.0F;
      gate.at(0, 2) = std::numeric_limits<float>::quiet_NaN();

      modulate(exec, x.tensor(), gate.tensor(), f);

      EXPECT_EQ(x.get(0, 0), 0.0);
      EXPECT_EQ(x.get(0, 1), f == Modulation::silu ? 2000.0 : 2.0);
      EXPECT_TRUE(std::isnan(x.get(0, 2)));
    }
  });
}

using ModulateGpu = testing::OnGpu;

TEST_F(ModulateGpu, AgreesWithADoubleReferenceForEveryType) {
  for (const Dtype type : testing::activation_types) {
    for (const Modulation f : modulations) {
      for (const int32_t columns : {13, 2048}) {
        TestDevice device;
        Exec exec = device.exec();
        exec.activations = type;
        auto x = testing::FloatMatrix::random(type, 5, columns, 3, 1, 2.0F);
        auto before = x;
        auto gate = testing::FloatMatrix::random(type, 5, columns, 8, 2, 3.0F);

        modulate(exec, x.tensor(), gate.tensor(), f);

        for (int32_t row = 0; row < 5; ++row) {
          for (int32_t i = 0; i < columns; ++i) {
            const double expected = modulated(before.get(row, i), gate.get(row, i), f);
            ASSERT_NEAR(x.get(row, i), expected, (testing::rounding(type) + 1e-6) * std::abs(expected) + 6e-8);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace quern
