#include "ops/elementwise.h"

#include "ops/test_device.h"

namespace quern {
namespace {

TEST(Elementwise, AddsScalesAndCaps) {
  at_every_isa([] {
    for (const int32_t dim : {1, 15, 576, 9001}) {
      TestDevice device;
      Exec exec = device.exec();
      TestMatrix x = TestMatrix::random(5, dim, 1, 20.0F);
      TestMatrix y = TestMatrix::random(5, dim, 2, 20.0F);
      TestMatrix sums = x;
      TestMatrix scaled = x;
      TestMatrix capped = x;

      add(exec, sums.tensor(), y.tensor());
      scale(exec, scaled.tensor(), 0.125F);
      softcap(exec, capped.tensor(), 30.0F);

      for (int32_t row = 0; row < 5; ++row) {
        for (int32_t i = 0; i < dim; ++i) {
          ASSERT_EQ(sums.at(row, i), x.at(row, i) + y.at(row, i));
          ASSERT_EQ(scaled.at(row, i), x.at(row, i) * 0.125F);
          ASSERT_NEAR(capped.get(row, i), 30.0 * std::tanh(x.get(row, i) / 30.0), 1e-5);
        }
      }
    }
  });
}

}  // namespace
}  // namespace quern
