#include "ops/linear.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "ops/linear_testing.h"

namespace quern {
namespace {

using testing::at_every_level;
using testing::Bench;
using testing::matrix_of;
using testing::random_floats;
using testing::random_weight;
using testing::RandomWeight;
using testing::view;

/// One output in double, and how far a kernel may be from it: half a step of the 16-bit activations in each group of 32
/// times its weights (integer formats), and the rounding of float sums, where a zero-point or minimum may be subtracted
/// from something larger than the result (hence 4 * the largest weight).
struct Expected {
  double value = 0;
  double tolerance = 0;
};

Expected expected(const RandomWeight& w, int row, const float* x) {
  const bool integers = format_info(w.weight.format).scale_bytes > 0;
  Expected out;
  for (int group = 0; group < w.weight.cols; group += 32) {
    double largest_x = 0;
    double largest_w = 0;
    double sum_w = 0;
    const int end = std::min(group + 32, w.weight.cols);
    for (int k = group; k < end; ++k) {
      out.value += double{w.at(row, k)} * x[k];
      largest_x = std::max(largest_x, std::fabs(double{x[k]}));
      largest_w = std::max(largest_w, std::fabs(double{w.at(row, k)}));
      sum_w += std::fabs(double{w.at(row, k)});
    }
    if (integers) out.tolerance += 1.01 * sum_w * largest_x / 65534;
    out.tolerance += std::ldexp(32 * 4 * largest_w * largest_x, -24);
  }
  return out;
}

void expect_product(const RandomWeight& w, const Tensor& x, const Tensor& y, int first_row, const float* bias) {
  for (int t = 0; t < x.dims[0]; ++t) {
    for (int row = 0; row < w.weight.rows; ++row) {
      const Expected want = expected(w, row, x.row<float>(t));
      const double added = bias == nullptr ? 0.0 : double{bias[row]};
      ASSERT_NEAR(y.row<float>(t)[first_row + row], want.value + added, want.tolerance + 1e-6)
          << "token " << t << " row " << row << " of " << w.weight.rows;
    }
  }
}

class EveryFormat : public ::testing::TestWithParam<FormatId> {};

TEST_P(EveryFormat, MultipliesAsADoubleReference) {
  at_every_level([&] {
    for (const auto& [rows, cols, tokens] : {std::tuple{8, 256, 1},
                                             {1, 256, 3},
                                             {40, 512, 2},
                                             {23, 768, 4},
                                             {24, 256, 7},
                                             {50, 512, 13},
                                             {33, 2304, 70}}) {
      SCOPED_TRACE(::testing::Message() << rows << " x " << cols << ", " << tokens << " tokens");
      const RandomWeight w = random_weight(GetParam(), rows, cols, 7);
      std::vector<float> x = random_floats(static_cast<size_t>(tokens) * static_cast<size_t>(cols), 11);
      Bench bench(2);
      Exec exec = bench.exec();

      const Tensor y = linear(exec, view(x, tokens, cols), matrix_of({&w}));

      expect_product(w, view(x, tokens, cols), y, 0, nullptr);
    }
  });
}

TEST_P(EveryFormat, TakesColumnsInSmallMultiplesOfItsGroup) {
  const auto [name, group, data_bytes, scale_bytes, least] = format_info(GetParam());
  at_every_level([&] {
    for (const int cols : {group, 3 * group, 5 * group, 9 * group, least, group + least, 5 * group - least}) {
      for (const int tokens : {1, 9}) {
        SCOPED_TRACE(::testing::Message() << cols << " columns, " << tokens << " tokens");
        const RandomWeight w = random_weight(GetParam(), 19, cols, 3);
        std::vector<float> x = random_floats(static_cast<size_t>(tokens * cols), 5);
        Bench bench(1);
        Exec exec = bench.exec();

        const Tensor y = linear(exec, view(x, tokens, cols), matrix_of({&w}));

        expect_product(w, view(x, tokens, cols), y, 0, nullptr);
      }
    }
  });
}

TEST_P(EveryFormat, GivesATokenTheSameBitsInEveryBatch) {
  constexpr int cols = 512;
  constexpr int most = 40;
  at_every_level([&] {
    const RandomWeight q = random_weight(GetParam(), 72, cols, 1);
    const RandomWeight k = random_weight(GetParam(), 20, cols, 2);
    const RandomWeight v = random_weight(FormatId::f16, 8, cols, 3);
    const Matrix matrix = matrix_of({&q, &k, &v});
    std::vector<float> x = random_floats(static_cast<size_t>(most * cols), 4);
    Bench one(1);
    std::vector<std::vector<float>> alone;
    for (int t = 0; t < most; ++t) {
      Exec exec = one.exec();
      const Arena::Scope scope(exec.arena);
      const Tensor y = linear(exec, view(x, most, cols).rows(t, 1), matrix);
      alone.emplace_back(y.as<float>(), y.as<float>() + matrix.rows);
    }
    const auto expect_same = [&](Bench& bench, int tokens) {
      Exec exec = bench.exec();
      const Arena::Scope scope(exec.arena);

      const Tensor y = linear(exec, view(x, tokens, cols), matrix);

      const size_t row_bytes = sizeof(float) * static_cast<size_t>(matrix.rows);
      for (int t = 0; t < tokens; ++t) {
        ASSERT_EQ(std::memcmp(y.row<float>(t), alone[static_cast<size_t>(t)].data(), row_bytes), 0)
            << tokens << " tokens, token " << t;
      }
    };
    Bench two(2);
    for (int tokens = 1; tokens <= most; ++tokens) expect_same(two, tokens);
    for (const int threads : {1, 3, 4}) {
      Bench bench(threads);
      for (const int tokens : {1, 5, 40}) expect_same(bench, tokens);
    }
  });
}

std::string format_title(const ::testing::TestParamInfo<FormatId>& info) {
  return std::string(format_info(info.param).name);
}
INSTANTIATE_TEST_SUITE_P(Linear, EveryFormat, ::testing::ValuesIn(all_format_ids), format_title);

TEST(Linear, StacksPartsOfSeveralFormatsAndAddsTheBias) {
  at_every_level([] {
    const RandomWeight q = random_weight(FormatId::q4_1, 30, 256, 1);
    const RandomWeight k = random_weight(FormatId::q8_0, 10, 256, 2);
    const RandomWeight v = random_weight(FormatId::bf16, 17, 256, 3);
    Matrix matrix = matrix_of({&q, &k, &v});
    std::vector<float> bias = random_floats(57, 4);
    matrix.bias = Tensor::dense(reinterpret_cast<std::byte*>(bias.data()), Dtype::f32, 57);
    for (const int tokens : {1, 11}) {
      std::vector<float> x = random_floats(static_cast<size_t>(tokens) * 256, 5);
      Bench bench(2);
      Exec exec = bench.exec();

      const Tensor y = linear(exec, view(x, tokens, 256), matrix);

      expect_product(q, view(x, tokens, 256), y, 0, bias.data());
      expect_product(k, view(x, tokens, 256), y, 30, bias.data() + 30);
      expect_product(v, view(x, tokens, 256), y, 40, bias.data() + 40);
    }
  });
}

TEST(Linear, MultipliesRowsWithTheirScalesBeforeTheBias) {
  at_every_level([] {
    const RandomWeight q = random_weight(FormatId::f8, 37, 256, 1);
    const RandomWeight k = random_weight(FormatId::bf16, 20, 256, 2);
    Matrix matrix = matrix_of({&q, &k});
    std::vector<float> scale = random_floats(57, 3);
    std::vector<float> bias = random_floats(57, 4);
    const auto vector = [](std::vector<float>& from) {
      return Tensor::dense(reinterpret_cast<std::byte*>(from.data()), Dtype::f32, static_cast<int32_t>(from.size()));
    };
    for (const int tokens : {1, 11, 70}) {
      std::vector<float> x = random_floats(static_cast<size_t>(tokens) * 256, 5);
      Bench bench(2);
      Exec exec = bench.exec();
      const Tensor plain = linear(exec, view(x, tokens, 256), matrix);
      matrix.scale = vector(scale);
      const Tensor scaled = linear(exec, view(x, tokens, 256), matrix);
      matrix.bias = vector(bias);
      const Tensor both = linear(exec, view(x, tokens, 256), matrix);
      matrix.scale = matrix.bias = Tensor{};

      for (int t = 0; t < tokens; ++t) {
        for (size_t row = 0; row < 57; ++row) {
          const float product = plain.row<float>(t)[row] * scale[row];
          ASSERT_EQ(scaled.row<float>(t)[row], product);
          ASSERT_EQ(both.row<float>(t)[row], product + bias[row]);
        }
      }
    }
  });
}

TEST(Linear, AddsToAStridedResultAndTouchesNothingBesideIt) {
  constexpr int rows = 37;
  constexpr int cols = 320;
  constexpr float untouched = -77.0F;
  at_every_level([&] {
    const RandomWeight w = random_weight(FormatId::q5_0, rows, cols, 1);
    for (const int tokens : {1, 3, 9}) {
      std::vector<float> wide_x(static_cast<size_t>(tokens * (cols + 50)), std::numeric_limits<float>::quiet_NaN());
      std::vector<float> wide_y(static_cast<size_t>(tokens * (rows + 20)), untouched);
      const Tensor x = view(wide_x, tokens, cols + 50).columns(13, cols);
      const Tensor y = view(wide_y, tokens, rows + 20).columns(5, rows);
      const std::vector<float> values = random_floats(static_cast<size_t>(tokens * cols), 2);
      for (int t = 0; t < tokens; ++t) {
        std::copy_n(values.data() + t * cols, cols, x.row<float>(t));
        std::fill_n(y.row<float>(t), rows, 2.0F);
      }
      Bench bench(2);
      Exec exec = bench.exec();

      linear_into(exec, y, x, matrix_of({&w}), true);

      const std::vector<float> twos(rows, 2.0F);
      expect_product(w, x, y, 0, twos.data());
      for (int t = 0; t < tokens; ++t) {
        for (int i = 0; i < rows + 20; ++i) {
          if (i < 5 || i >= 5 + rows) ASSERT_EQ(wide_y[static_cast<size_t>(t * (rows + 20) + i)], untouched);
        }
      }
    }
  });
}

TEST(Linear, KeepsANotFiniteTokenToItself) {
  at_every_level([] {
    const RandomWeight w = random_weight(FormatId::q4_0, 24, 256, 1);
    for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      for (const int tokens : {2, 8}) {
        std::vector<float> x = random_floats(static_cast<size_t>(tokens) * 256, 5);
        x[256 + 100] = poison;
        Bench bench(1);
        Exec exec = bench.exec();

        const Tensor y = linear(exec, view(x, tokens, 256), matrix_of({&w}));

        for (int t = 0; t < tokens; ++t) {
          for (int row = 0; row < 24; ++row) ASSERT_EQ(std::isfinite(y.row<float>(t)[row]), t != 1);
        }
      }
    }
  });
}

TEST(Linear, HoldsItsAccuracyForLargeAndTinyActivations) {
  at_every_level([] {
    const RandomWeight w = random_weight(FormatId::q8_0, 16, 512, 1);
    for (const float factor : {0.0F, 1e-36F, 1e-20F, 1e20F}) {
      for (const int tokens : {1, 6}) {
        std::vector<float> x = random_floats(static_cast<size_t>(tokens) * 512, 5);
        for (float& value : x) value *= factor;
        Bench bench(1);
        Exec exec = bench.exec();

        const Tensor y = linear(exec, view(x, tokens, 512), matrix_of({&w}));

        for (int row = 0; row < 16; ++row) {
          const Expected want = expected(w, row, x.data());
          ASSERT_NEAR(y.row<float>(0)[row], want.value, want.tolerance + 1e-25);
        }
      }
    }
  });
}

TEST(Linear, SaysHowMuchMemoryPackingTakes) {
  const int panel = panel_rows(DeviceKind::cpu, FormatId::q4_1);

  EXPECT_EQ(packed_bytes(DeviceKind::cpu, FormatId::q4_1, panel, 64), panel * 2 * 20);
  EXPECT_EQ(packed_bytes(DeviceKind::cpu, FormatId::q4_1, panel + 1, 64), 2 * panel * 2 * 20);
}

}  // namespace
}  // namespace quern
