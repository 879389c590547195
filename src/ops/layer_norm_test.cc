#include "ops/layer_norm.h"

#include "ops/gpu_testing.h"

namespace quern::testing {
namespace {

/// (x - mean) / deviation of the values begin, begin + 1, ... of a row.
template <typename Value>
std::vector<double> normalized(Value&& value, int32_t dim) {
  double mean = 0;
  double squares = 0;
  for (int32_t i = 0; i < dim; ++i) mean += value(i) / dim;
  for (int32_t i = 0; i < dim; ++i) squares += (value(i) - mean) * (value(i) - mean);
  std::vector<double> out;
  for (int32_t i = 0; i < dim; ++i) out.push_back((value(i) - mean) / std::sqrt(squares / dim + 1e-5));
  return out;
}

std::vector<float> ramp(int32_t count, float first) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 13) + first;
  return values;
}

double at(const std::vector<float>& values, int32_t i) { return static_cast<double>(values[static_cast<size_t>(i)]); }

/// Rows with a mean far from 0, of any type of result.
void expect_reference(Dtype type, int32_t dim, bool with_bias) {
  TestDevice device;
  Exec exec = device.exec();
  exec.activations = type;
  TestMatrix x = TestMatrix::random(9, dim, 1, 5.0F);
  for (int32_t row = 0; row < 9; ++row) {
    for (int32_t i = 0; i < dim; ++i) x.at(row, i) += 30.0F;
  }
  std::vector<float> weight = ramp(dim, -5.5F);
  std::vector<float> bias = ramp(dim, 0.25F);

  const Tensor y = layer_norm(exec, x.tensor(), quern::view(weight), with_bias ? quern::view(bias) : Tensor{}, 1e-5F);

  ASSERT_EQ(y.dtype, type);
  for (int32_t row = 0; row < 9; ++row) {
    const std::vector<double> values = normalized([&](int32_t i) { return x.get(row, i); }, dim);
    for (int32_t i = 0; i < dim; ++i) {
      const double product = values[static_cast<size_t>(i)] * at(weight, i);
      const double expected = product + (with_bias ? at(bias, i) : 0.0);
      ASSERT_NEAR(float_at(y, row, i), expected, 2e-5 + rounding(type) * std::abs(expected)) << dim << " column " << i;
    }
  }
}

TEST(LayerNorm, AgreesWithADoubleReference) {
  at_every_isa([] {
    for (const int32_t dim : {2, 7, 32, 63, 576, 1000, 4096}) {
      expect_reference(Dtype::f32, dim, true);
      expect_reference(Dtype::f32, dim, false);
    }
  });
}

TEST(LayerNorm, OfEqualValuesIsTheBias) {
  at_every_isa([] {
    TestDevice device;
    Exec exec = device.exec();
    TestMatrix x(1, 20);
    for (int32_t i = 0; i < 20; ++i) x.at(0, i) = 7.0F;
    std::vector<float> weight(20, 1.0F);
    std::vector<float> bias(20, 0.5F);

    const Tensor y = layer_norm(exec, x.tensor(), quern::view(weight), quern::view(bias), 1e-5F);

    for (int32_t i = 0; i < 20; ++i) EXPECT_EQ(float_at(y, 0, i), 0.5);
  });
}

/// Every head of every token in place, with weights of its own.
void expect_heads(Dtype type, int32_t dim) {
  constexpr int32_t heads = 3;
  TestDevice device;
  Exec exec = device.exec();
  exec.activations = type;
  FloatMatrix x = FloatMatrix::random(type, 11, heads * dim, 24, 2);
  FloatMatrix before = x;
  std::vector<float> weight = ramp(heads * dim, -5.5F);
  const Tensor weights = Tensor::dense(reinterpret_cast<std::byte*>(weight.data()), Dtype::f32, heads, dim);

  layer_norm_heads(exec, x.tensor(), weights, 1e-5F);

  for (int32_t row = 0; row < 11; ++row) {
    for (int32_t i = 0; i < heads * dim; ++i) {
      const int32_t head = i / dim;
      const std::vector<double> values = normalized([&](int32_t j) { return before.get(row, head * dim + j); }, dim);
      const double expected = values[static_cast<size_t>(i % dim)] * at(weight, i);
      ASSERT_NEAR(x.get(row, i), expected, 1e-5 + rounding(type) * std::abs(expected));
    }
  }
}

TEST(LayerNorm, NormalizesEveryHeadInPlace) {
  at_every_isa([] {
    for (const int32_t dim : {8, 20, 64}) expect_heads(Dtype::f32, dim);
  });
}

using LayerNormGpu = OnGpu;

TEST_F(LayerNormGpu, WritesEveryType) {
  for (const Dtype type : activation_types) {
    for (const int32_t dim : {8, 576, 4096, 1001}) expect_reference(type, dim, true);
    for (const int32_t dim : {20, 128}) expect_heads(type, dim);
  }
}

}  // namespace
}  // namespace quern::testing
