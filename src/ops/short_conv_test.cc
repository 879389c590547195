#include "ops/short_conv.h"

#include <cstring>

#include "ops/recurrent_testing.h"

namespace quern {
namespace {

using testing::FloatMatrix;
using testing::Pieces;
using testing::RecurrentRows;

constexpr int32_t length = 37;

struct Case {
  int32_t taps;
  int32_t channels;
  bool bias;
  bool silu;
};

struct Weights {
  explicit Weights(const Case& c) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    taps.resize(static_cast<size_t>(c.taps * c.channels));
    bias.resize(static_cast<size_t>(c.channels));
    for (auto* values : {&taps, &bias}) {
      for (float& value : *values) value = normal(random);
    }
    tensors.taps = Tensor::dense(reinterpret_cast<std::byte*>(taps.data()), Dtype::f32, c.taps, c.channels);
    if (c.bias) tensors.bias = view(bias);
    tensors.silu = c.silu;
  }
  std::vector<float> taps, bias;
  ShortConvWeights tensors;
};

double reference(FloatMatrix& text, const Case& c, const Weights& weights, int32_t t, int32_t channel) {
  double sum = c.bias ? static_cast<double>(weights.bias[static_cast<size_t>(channel)]) : 0.0;
  for (int32_t j = 0; j < c.taps; ++j) {
    const int32_t from = t - c.taps + 1 + j;
    const double weight = static_cast<double>(weights.taps[static_cast<size_t>(j * c.channels + channel)]);
    if (from >= 0) sum += weight * text.get(from, channel);
  }
  return c.silu ? sum / (1 + std::exp(-sum)) : sum;
}

void expect_the_reference(const Case& c, Dtype type) {
  const Weights weights(c);
  std::vector<FloatMatrix> texts;
  for (uint32_t row = 0; row < 2; ++row) texts.push_back(FloatMatrix::random(type, length, c.channels, 0, row + 1));
  for (const std::vector<Pieces>& plan : testing::recurrent_plans(length)) {
    RecurrentRows rows(2, short_conv_state_bytes(c.taps, c.channels));
    for (const Pieces& pieces : plan) {
      TestDevice device;
      Exec exec = device.exec();
      exec.activations = type;
      FloatMatrix x = testing::tokens_of(rows, pieces, texts, type, c.channels);
      const Segments segments = rows.next(pieces);

      const Tensor y = short_conv(exec, x.tensor(), weights.tensors, rows.state(), segments);

      int32_t t = 0;
      for (const auto& [row, count] : pieces) {
        for (int32_t i = 0; i < count; ++i, ++t) {
          for (int32_t channel = 0; channel < c.channels; ++channel) {
            const double expected =
                row < 0 ? 0
                        : reference(texts[static_cast<size_t>(row)], c, weights, rows.length(row) - count + i, channel);
            ASSERT_NEAR(testing::float_at(y, t, channel), expected,
                        3 * testing::rounding(type) * std::abs(expected) + 4e-6);
          }
        }
      }
    }
    EXPECT_TRUE(rows.gaps_are_untouched());
  }
}

constexpr Case cases[] = {
    {2, 16, false, false}, {3, 48, false, false}, {3, 80, true, false}, {4, 144, false, true}, {4, 2064, true, true}};

TEST(ShortConv, AgreesWithADoubleReferenceHoweverTextsAreCut) {
  at_every_isa([] {
    for (const Case& c : cases) expect_the_reference(c, Dtype::f32);
  });
}

TEST(ShortConv, ATokensBitsDoNotDependOnTheStepItIsIn) {
  at_every_isa([] {
    const Case c{4, 64, true, true};
    const Weights weights(c);
    std::vector<FloatMatrix> texts{FloatMatrix::random(Dtype::f32, length, c.channels, 0, 1)};
    std::vector<std::vector<float>> results;
    for (const int32_t size : {length, 1, 5}) {
      RecurrentRows rows(1, short_conv_state_bytes(c.taps, c.channels));
      std::vector<float>& all = results.emplace_back();
      for (int32_t done = 0; done < length; done += size) {
        const Pieces pieces{{0, std::min(size, length - done)}};
        TestDevice device;
        Exec exec = device.exec();
        FloatMatrix x = testing::tokens_of(rows, pieces, texts, Dtype::f32, c.channels);
        const Segments segments = rows.next(pieces);
        const Tensor y = short_conv(exec, x.tensor(), weights.tensors, rows.state(), segments);
        all.insert(all.end(), y.as<float>(), y.as<float>() + y.elements());
      }
    }
    for (const auto& result : results) {
      EXPECT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)), 0);
    }
  });
}

using ShortConvGpu = testing::OnGpu;

TEST_F(ShortConvGpu, AgreesWithADoubleReferenceForEveryType) {
  for (const Dtype type : testing::activation_types) {
    for (const Case& c : cases) expect_the_reference(c, type);
  }
}

}  // namespace
}  // namespace quern
