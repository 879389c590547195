#include "ops/rms_norm.h"

#include "ops/test_device.h"

namespace quern {
namespace {

double scale_of(TestMatrix& x, int32_t row, int32_t begin, int32_t dim) {
  double squares = 0;
  for (int32_t i = begin; i < begin + dim; ++i) squares += x.get(row, i) * x.get(row, i);
  return 1.0 / std::sqrt(squares / dim + 1e-5);
}

TEST(RmsNorm, AgreesWithADoubleReference) {
  at_every_isa([] {
    for (const int32_t dim : {1, 7, 32, 63, 576, 1000, 4096}) {
      TestDevice device;
      Exec exec = device.exec();
      TestMatrix x = TestMatrix::random(37, dim, 1, 5.0F);
      std::vector<float> weight(static_cast<size_t>(dim));
      for (size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<float>(i % 13) - 5.5F;

      const Tensor y = rms_norm(exec, x.tensor(), view(weight), 1e-5F);

      for (int32_t row = 0; row < 37; ++row) {
        const double scale = scale_of(x, row, 0, dim);
        for (int32_t i = 0; i < dim; ++i) {
          const double expected = x.get(row, i) * scale * static_cast<double>(weight[static_cast<size_t>(i)]);
          ASSERT_NEAR(value_at(y, row, i), expected, 1e-6 * std::abs(expected)) << dim;
        }
      }
    }
  });
}

TEST(RmsNorm, NormalizesEveryHeadInPlace) {
  at_every_isa([] {
    for (const int32_t dim : {16, 80, 128}) {
      TestDevice device;
      Exec exec = device.exec();
      TestMatrix x = TestMatrix::random(11, 3 * dim, 2);
      TestMatrix before = x;
      std::vector<float> weight(static_cast<size_t>(dim), 1.5F);

      rms_norm_heads(exec, x.tensor(), view(weight), 1e-5F);

      for (int32_t row = 0; row < 11; ++row) {
        for (int32_t i = 0; i < 3 * dim; ++i) {
          const double expected = before.get(row, i) * scale_of(before, row, i / dim * dim, dim) * 1.5;
          ASSERT_NEAR(x.get(row, i), expected, 1e-6 * std::abs(expected));
        }
      }
    }
  });
}

}  // namespace
}  // namespace quern
