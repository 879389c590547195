// The two operations in one give the bits of one after the other.
#include "ops/gated_linear.h"

#include <cstring>
#include <gtest/gtest.h>

#include "ops/gpu_testing.h"
#include "ops/linear_testing.h"

namespace quern {
namespace {

using testing::random_weight;
using testing::RandomWeight;

constexpr int rows = 48;

struct Case {
  FormatId format = FormatId::f32;
  Dtype activations = Dtype::f32;
  int tokens = 1;
  int cols = 256;
  bool scale = false;
  bool bias = false;
  bool accumulate = false;
  Activation activation = Activation::silu;
};

std::vector<float> computed(const Case& c, const RandomWeight& w, bool in_one) {
  Matrix matrix{{w.weight}, 1, rows, c.cols, {}, {}};
  std::vector<float> factors = testing::random_floats(rows, 3);
  std::vector<float> added = testing::random_floats(rows, 4);
  if (c.scale) matrix.scale = view(factors);
  if (c.bias) matrix.bias = view(added);
  testing::FloatMatrix x = testing::FloatMatrix::random(c.activations, c.tokens, 2 * c.cols, 0, 5, 2.0F);
  std::vector<float> y(static_cast<size_t>(c.tokens) * rows, 0.5F);
  const Tensor out = testing::view(y, c.tokens, rows);
  testing::Bench bench(2, int64_t{96} << 20);
  Exec exec = bench.exec();
  exec.activations = c.activations;
  exec.queue.batch_invariant = false;
  if (in_one) {
    gated_linear_into(exec, out, x.tensor(), c.activation, matrix, c.accumulate);
  } else {
    linear_into(exec, out, gated(exec, x.tensor(), c.activation), matrix, c.accumulate);
  }
  return y;
}

void expect_equal(const Case& c) {
  const RandomWeight w = random_weight(c.format, rows, c.cols, 7);
  const std::vector<float> actual = computed(c, w, true);
  const std::vector<float> wanted = computed(c, w, false);
  EXPECT_EQ(std::memcmp(actual.data(), wanted.data(), wanted.size() * sizeof(float)), 0)
      << c.tokens << " tokens, " << c.cols << " columns, activation " << static_cast<int>(c.activation);
  EXPECT_NE(actual[0], 0.5F);
}

TEST(GatedLinear, GivesTheBitsOfTheTwoOneAfterTheOther) {
  testing::at_every_level([] {
    for (const FormatId format : {FormatId::f32, FormatId::bf16, FormatId::q4_0}) {
      for (const int tokens : {1, 5, 70}) {
        expect_equal({.format = format, .tokens = tokens, .bias = tokens == 5, .accumulate = tokens == 70});
      }
    }
  });
}

using OnGpuGatedLinear = testing::OnGpu;

TEST_F(OnGpuGatedLinear, GivesTheBitsOfTheTwoInEightBitFloats) {
  for (const Dtype activations : {Dtype::bf16, Dtype::f16}) {
    for (const int cols : {64, 1536, 14336, 16448}) {
      for (const int tokens : {1, 17, 130}) {
        expect_equal({FormatId::f8, activations, tokens, cols, true, false, tokens == 130});
      }
    }
    for (const Activation activation :
         {Activation::gelu_tanh, Activation::gelu_erf, Activation::relu, Activation::clamped_swiglu}) {
      expect_equal({FormatId::f8, activations, 33, 512, true, false, false, activation});
    }
    expect_equal({FormatId::f8, activations, 33, 512, true, true, true});
    expect_equal({FormatId::bf16, activations, 33, 512, false, true, true});
  }
}

}  // namespace
}  // namespace quern
