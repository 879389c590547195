#include "ops/gpu_testing.h"
#include "ops/rms_norm.h"

namespace quern::testing {
namespace {

using RmsNormGpu = OnGpu;

std::vector<float> some_weights(int32_t dim) {
  std::vector<float> weight(static_cast<size_t>(dim));
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<float>(i % 13) - 5.5F;
  return weight;
}

template <typename Value>
double scale_of(Value&& value, int32_t dim) {
  double squares = 0;
  for (int32_t i = 0; i < dim; ++i) squares += value(i) * value(i);
  return 1.0 / std::sqrt(squares / dim + 1e-5);
}

TEST_F(RmsNormGpu, WritesEveryTypeFromRowsOfAnyLength) {
  for (const Dtype type : activation_types) {
    for (const int32_t dim : {8, 64, 260, 576, 1032, 2048, 4096, 5120, 8192, 16384, 20000, 1001}) {
      for (const int32_t padding : {8, 3}) {
        TestDevice device;
        Exec exec = device.exec();
        exec.activations = type;
        FloatMatrix x = FloatMatrix::random(Dtype::f32, 5, dim, padding, 1, 5.0F);
        std::vector<float> weight = some_weights(dim);

        const Tensor y = rms_norm(exec, x.tensor(), quern::view(weight), 1e-5F);

        ASSERT_EQ(y.dtype, type);
        for (int32_t row = 0; row < 5; ++row) {
          const double scale = scale_of([&](int32_t i) { return x.get(row, i); }, dim);
          for (int32_t i = 0; i < dim; ++i) {
            const double expected = x.get(row, i) * scale * static_cast<double>(weight[static_cast<size_t>(i)]);
            ASSERT_NEAR(float_at(y, row, i), expected, (1e-6 + rounding(type)) * std::abs(expected) + 1e-7)
                << dtype_name(type) << " " << dim << " column " << i;
          }
        }
      }
    }
  }
}

TEST_F(RmsNormGpu, NormalizesHeadsOfEveryTypeInPlace) {
  constexpr int32_t heads = 5;
  for (const Dtype type : activation_types) {
    for (const int32_t dim : {16, 64, 80, 128, 256, 512, 20}) {
      TestDevice device;
      Exec exec = device.exec();
      exec.activations = type;
      FloatMatrix x = FloatMatrix::random(type, 11, heads * dim, 24, 2);
      FloatMatrix before = x;
      std::vector<float> weight = some_weights(dim);

      rms_norm_heads(exec, x.tensor(), quern::view(weight), 1e-5F);

      for (int32_t row = 0; row < 11; ++row) {
        for (int32_t head = 0; head < heads; ++head) {
          const double scale = scale_of([&](int32_t i) { return before.get(row, head * dim + i); }, dim);
          for (int32_t i = 0; i < dim; ++i) {
            const double expected =
                before.get(row, head * dim + i) * scale * static_cast<double>(weight[static_cast<size_t>(i)]);
            ASSERT_NEAR(x.get(row, head * dim + i), expected, (1e-6 + rounding(type)) * std::abs(expected) + 1e-7)
                << dtype_name(type) << " " << dim;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace quern::testing
