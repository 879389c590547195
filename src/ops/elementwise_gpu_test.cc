#include "ops/elementwise.h"
#include "ops/gpu_testing.h"

namespace quern::testing {
namespace {

using ElementwiseGpu = OnGpu;

TEST_F(ElementwiseGpu, TakesAlignedRowsInVectors) {
  for (const int32_t dim : {4, 576, 1028, 8200}) {
    TestDevice device;
    Exec exec = device.exec();
    TestMatrix x = TestMatrix::random(5, dim, 1, 20.0F);
    FloatMatrix sums(Dtype::f32, 5, dim, 4);
    FloatMatrix y = FloatMatrix::random(Dtype::f32, 5, dim, 8, 2, 20.0F);
    FloatMatrix scaled(Dtype::f32, 5, dim, 4);
    FloatMatrix capped(Dtype::f32, 5, dim, 4);
    for (FloatMatrix* const copy : {&sums, &scaled, &capped}) {
      for (int32_t row = 0; row < 5; ++row) {
        for (int32_t i = 0; i < dim; ++i) copy->set(row, i, x.at(row, i));
      }
    }

    add(exec, sums.tensor(), y.tensor());
    scale(exec, scaled.tensor(), 0.125F);
    softcap(exec, capped.tensor(), 30.0F);

    for (int32_t row = 0; row < 5; ++row) {
      for (int32_t i = 0; i < dim; ++i) {
        ASSERT_EQ(sums.get(row, i), static_cast<double>(x.at(row, i) + static_cast<float>(y.get(row, i))));
        ASSERT_EQ(scaled.get(row, i), x.get(row, i) * 0.125);
        ASSERT_NEAR(capped.get(row, i), 30.0 * std::tanh(x.get(row, i) / 30.0), 1e-5);
      }
    }
  }
}

TEST_F(ElementwiseGpu, MakesActivationsOfFloats) {
  for (const Dtype type : activation_types) {
    for (const int32_t dim : {1, 15, 576, 1028}) {
      TestDevice device;
      Exec exec = device.exec();
      exec.activations = type;
      TestMatrix x = TestMatrix::random(5, dim, 1, 20.0F);

      const Tensor y = to_activations(exec, x.tensor());

      ASSERT_EQ(y.dtype, type);
      for (int32_t row = 0; row < 5; ++row) {
        for (int32_t i = 0; i < dim; ++i) {
          ASSERT_NEAR(float_at(y, row, i), x.get(row, i), rounding(type) * std::abs(x.get(row, i)));
        }
      }
    }
  }
}

}  // namespace
}  // namespace quern::testing
