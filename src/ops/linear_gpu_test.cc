// linear on a GPU with half-float activations: every format, every way that a product takes.
#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "formats/half.h"
#include "ops/gpu_testing.h"
#include "ops/linear.h"
#include "ops/linear_testing.h"

namespace quern {
namespace {

using testing::Bench;
using testing::random_floats;
using testing::random_weight;
using testing::RandomWeight;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float untouched = -77.0F;

uint16_t to_half(Dtype dtype, float value) { return dtype == Dtype::f16 ? f32_to_f16(value) : f32_to_bf16(value); }
float from_half(Dtype dtype, uint16_t bits) { return dtype == Dtype::f16 ? f16_to_f32(bits) : bf16_to_f32(bits); }
/// Relative error of a rounding.
double rounding(Dtype dtype) {
  return dtype == Dtype::f32 ? std::ldexp(1.0, -24) : std::ldexp(1.0, dtype == Dtype::f16 ? -11 : -8);
}

/// A matrix of any float type with padding on all sides, which is NaN in operands and a mark in results.
class Padded {
 public:
  Padded(Dtype dtype, int rows, int cols, int before, int after, float fill)
      : dtype_(dtype),
        stride_(cols + before + after),
        bytes_(static_cast<size_t>(rows) * static_cast<size_t>(stride_) * static_cast<size_t>(dtype_bytes(dtype))) {
    all_ = Tensor::dense(bytes_.data(), dtype, rows, stride_);
    view_ = all_.columns(before, cols);
    for (int row = 0; row < rows; ++row) {
      for (int col = 0; col < stride_; ++col) set(all_, row, col, fill);
    }
  }

  void set(int row, int col, float value) { set(view_, row, col, value); }
  float get(int row, int col) const { return get(view_, row, col); }
  Tensor view() const { return view_; }
  bool padding_is(float value, int before) const {
    for (int row = 0; row < all_.dims[0]; ++row) {
      for (int col = 0; col < stride_; ++col) {
        if (col < before || col >= before + view_.dims[1]) {
          if (get(all_, row, col) != value) return false;
        }
      }
    }
    return true;
  }

 private:
  void set(const Tensor& x, int row, int col, float value) {
    if (dtype_ == Dtype::f32)
      x.row<float>(row)[col] = value;
    else
      x.row<uint16_t>(row)[col] = to_half(dtype_, value);
  }
  float get(const Tensor& x, int row, int col) const {
    return dtype_ == Dtype::f32 ? x.row<float>(row)[col] : from_half(dtype_, x.row<uint16_t>(row)[col]);
  }

  Dtype dtype_;
  int stride_;
  std::vector<std::byte> bytes_;
  Tensor all_;
  Tensor view_;
};

struct Case {
  std::vector<const RandomWeight*> parts;
  Dtype activations = Dtype::bf16;
  Dtype result = Dtype::bf16;
  int tokens = 1;
  bool scale = false;
  bool bias = false;
  bool accumulate = false;
  bool invariant = false;
  int padding = 0;  // before and after the columns of x and y
};

/// x of a case, which depends on the number of its tokens in nothing but their number.
Padded activations_of(const Case& c, int cols) {
  Padded x(c.activations, c.tokens, cols, c.padding, c.padding, nan);
  const std::vector<float> values = random_floats(static_cast<size_t>(c.tokens * cols), 5);
  for (int t = 0; t < c.tokens; ++t) {
    for (int k = 0; k < cols; ++k) x.set(t, k, values[static_cast<size_t>(t * cols + k)]);
  }
  return x;
}

float scale_of(const Case& c, int row) { return c.scale ? 0.5F + 0.25F * static_cast<float>(row % 7) : 1.0F; }

/// Computes a case; results begin as `start`.
Padded compute(const Case& c, const Padded& x, const std::vector<float>& bias, float start) {
  Matrix matrix = matrix_of(c.parts);
  if (c.bias) {
    matrix.bias = Tensor::dense(reinterpret_cast<std::byte*>(const_cast<float*>(bias.data())), Dtype::f32, matrix.rows);
  }
  std::vector<float> scale;
  for (int row = 0; row < matrix.rows; ++row) scale.push_back(scale_of(c, row));
  if (c.scale) matrix.scale = Tensor::dense(reinterpret_cast<std::byte*>(scale.data()), Dtype::f32, matrix.rows);
  Padded y(c.result, c.tokens, matrix.rows, c.padding, c.padding, untouched);
  for (int t = 0; t < c.tokens; ++t) {
    for (int row = 0; row < matrix.rows; ++row) y.set(t, row, start);
  }
  Bench bench(1, int64_t{80} << 20);
  Exec exec = bench.exec();
  exec.activations = c.activations;
  exec.queue.batch_invariant = c.invariant;
  linear_into(exec, y.view(), x.view(), matrix, c.accumulate);
  return y;
}

/// Against sums in double. Weights that the library takes are rounded to the activations' type first.
void expect_right(const Case& c) {
  const int cols = c.parts[0]->weight.cols;
  const Padded x = activations_of(c, cols);
  int rows = 0;
  for (const RandomWeight* part : c.parts) rows += part->weight.rows;
  const std::vector<float> bias = random_floats(static_cast<size_t>(rows), 9);
  const Padded y = compute(c, x, bias, c.accumulate ? 2.0F : nan);
  EXPECT_TRUE(y.padding_is(untouched, c.padding));
  std::vector<double> token(static_cast<size_t>(cols));
  for (int t = 0; t < c.tokens; ++t) {
    for (int k = 0; k < cols; ++k) token[static_cast<size_t>(k)] = double{x.get(t, k)};
    int column = 0;
    for (const RandomWeight* part : c.parts) {
      for (int row = 0; row < part->weight.rows; ++row, ++column) {
        double want = (c.accumulate ? 2.0 : 0.0) + (c.bias ? double{bias[static_cast<size_t>(column)]} : 0.0);
        double size = std::fabs(want);
        double squares = 0;
        double weights = 0;
        double largest = 0;
        for (int k = 0; k < cols; ++k) {
          const double product = double{scale_of(c, column)} * double{part->at(row, k)} * token[static_cast<size_t>(k)];
          want += product;
          size += std::fabs(product);
          squares += product * product;
          weights += std::pow(double{scale_of(c, column)} * double{part->at(row, k)}, 2);
          largest = std::max(largest, std::fabs(token[static_cast<size_t>(k)]));
        }
        double tolerance = 1e-6 + std::ldexp(size, -20) + 1.5 * rounding(c.result) * (std::fabs(want) + 4.0);
        if (c.tokens > 4 && !c.invariant) tolerance += 8 * rounding(c.activations) * std::sqrt(squares);
        // Activations of 16-bit integers, half a step of the largest.
        const bool integers = format_info(part->weight.format).scale_bytes > 0 && c.tokens <= 4 && !c.invariant;
        if (integers) tolerance += 5 * largest / 65024 * std::sqrt(weights);
        // Activations of 8-bit floats.
        const bool f8 = part->weight.format == FormatId::f8 && c.scale && c.tokens > 1 && !c.invariant;
        if (f8) tolerance += 0.25 * std::sqrt(squares);
        ASSERT_NEAR(y.get(t, column), want, tolerance) << c.tokens << " tokens: token " << t << " row " << row;
      }
    }
  }
}

constexpr Dtype halves[] = {Dtype::f16, Dtype::bf16};

class EveryFormatOnGpu : public testing::OnGpu, public ::testing::WithParamInterface<FormatId> {};

TEST_P(EveryFormatOnGpu, MultipliesHalfFloatsAsADoubleReference) {
  const RandomWeight w = random_weight(GetParam(), 83, 768, 7);
  for (const Dtype activations : halves) {
    for (const bool invariant : {false, true}) {
      for (const int tokens : {1, 2, 3, 8, 9, 17, 33, 64, 65, 130}) {
        SCOPED_TRACE(::testing::Message() << dtype_name(activations) << (invariant ? ", invariant" : ""));
        expect_right({.parts = {&w},
                      .activations = activations,
                      .result = activations,
                      .tokens = tokens,
                      .invariant = invariant});
      }
    }
  }
}

TEST_P(EveryFormatOnGpu, TakesAnyShape) {
  const int group = format_info(GetParam()).group;
  for (const int cols : {group, 3 * group, 37 * group}) {
    for (const int rows : {1, 16, 50, 300}) {
      const RandomWeight w = random_weight(GetParam(), rows, cols, 3);
      for (const int tokens : {1, 5, 12}) {
        SCOPED_TRACE(::testing::Message() << rows << " x " << cols);
        expect_right({.parts = {&w}, .result = Dtype::f32, .tokens = tokens, .invariant = tokens == 5});
      }
    }
  }
}

TEST_P(EveryFormatOnGpu, StacksPartsAddsBiasesAndAccumulates) {
  const RandomWeight q = random_weight(GetParam(), 40, 512, 1);
  const RandomWeight k = random_weight(GetParam(), 19, 512, 2);
  const RandomWeight v = random_weight(FormatId::q8_0, 21, 512, 3);
  for (const int tokens : {1, 4, 20, 100}) {
    for (const bool accumulate : {false, true}) {
      for (const int padding : {0, 3, 8}) {
        SCOPED_TRACE(::testing::Message() << "accumulate " << accumulate << ", padding " << padding);
        expect_right({.parts = {&q, &v, &k},
                      .activations = Dtype::f16,
                      .result = accumulate ? Dtype::f32 : Dtype::f16,
                      .tokens = tokens,
                      .bias = true,
                      .accumulate = accumulate,
                      .padding = padding});
      }
    }
  }
}

TEST_P(EveryFormatOnGpu, MultipliesRowsWithTheirScales) {
  const RandomWeight q = random_weight(GetParam(), 48, 768, 1);
  const RandomWeight k = random_weight(GetParam(), 32, 768, 2);
  const RandomWeight v = random_weight(FormatId::bf16, 20, 768, 3);
  for (const int tokens : {1, 9, 40, 100}) {
    for (const bool invariant : {false, true}) {
      for (const Dtype result : {Dtype::bf16, Dtype::f32}) {
        SCOPED_TRACE(::testing::Message() << "accumulate " << (result == Dtype::f32) << ", invariant " << invariant);
        expect_right({.parts = {&q, &k, &v},
                      .result = result,
                      .tokens = tokens,
                      .scale = true,
                      .bias = invariant,
                      .accumulate = result == Dtype::f32,
                      .invariant = invariant,
                      .padding = 8});
      }
    }
  }
}

TEST_P(EveryFormatOnGpu, GivesATokenTheSameBitsInEveryBatch) {
  const RandomWeight q = random_weight(GetParam(), 200, 1280, 1);
  const RandomWeight k = random_weight(FormatId::q4_0, 30, 1280, 2);
  Case all{.parts = {&q, &k}, .tokens = 130, .invariant = true};
  const Padded x = activations_of(all, 1280);
  const Padded together = compute(all, x, {}, nan);
  for (const int tokens : {1, 2, 3, 8, 9, 17, 33, 64, 65}) {
    Case some = all;
    some.tokens = tokens;
    const Padded alone = compute(some, activations_of(some, 1280), {}, nan);
    for (int t = 0; t < tokens; ++t) {
      for (int row = 0; row < 230; ++row) {
        ASSERT_EQ(std::bit_cast<uint32_t>(alone.get(t, row)), std::bit_cast<uint32_t>(together.get(t, row)))
            << tokens << " tokens: token " << t << " row " << row;
      }
    }
  }
}

TEST_P(EveryFormatOnGpu, KeepsANotFiniteTokenToItself) {
  const RandomWeight w = random_weight(GetParam(), 33, 256, 1);
  for (const int tokens : {2, 20, 70}) {
    const Case c{.parts = {&w}, .tokens = tokens};
    Padded x = activations_of(c, 256);
    x.set(1, 100, nan);
    const Padded y = compute(c, x, {}, nan);
    for (int t = 0; t < tokens; ++t) {
      for (int row = 0; row < 33; ++row) ASSERT_EQ(std::isfinite(y.get(t, row)), t != 1) << "token " << t;
    }
  }
}

std::string format_title(const ::testing::TestParamInfo<FormatId>& info) {
  return std::string(format_info(info.param).name);
}
INSTANTIATE_TEST_SUITE_P(Linear, EveryFormatOnGpu, ::testing::ValuesIn(all_format_ids), format_title);

class LinearOnGpu : public testing::OnGpu {};

/// Rows and columns enough for clusters, several tiles a block, and x in pieces.
TEST_F(LinearOnGpu, SpreadsLargeMatricesOverTheGpu) {
  for (const auto& [rows, cols] : {std::pair{64, 8192}, {500, 4096}, {3000, 512}}) {
    for (const FormatId format : {FormatId::bf16, FormatId::q4_k}) {
      const RandomWeight w = random_weight(format, rows, cols, 2);
      for (const int tokens : {1, 6, 16, 32, 64}) {
        SCOPED_TRACE(::testing::Message() << rows << " x " << cols << " " << format_info(format).name);
        for (const bool invariant : {false, true}) {
          expect_right(
              {.parts = {&w}, .result = Dtype::f32, .tokens = tokens, .accumulate = true, .invariant = invariant});
        }
      }
    }
  }
}

/// Formats in rows and few tokens: tiles of rows in several rounds, columns for each block of a cluster, x that fits
/// into shared memory and x that does not.
TEST_F(LinearOnGpu, MultipliesTilesOfRows) {
  for (const auto& [rows, cols] : {std::pair{128, 16384}, {300, 4096}, {5000, 512}, {34000, 128}, {22, 64}}) {
    for (const FormatId format : {FormatId::bf16, FormatId::f16, FormatId::f8}) {
      const RandomWeight w = random_weight(format, rows, cols, 2);
      for (const int tokens : {2, 11, 17, 40, 64, 100}) {
        for (const bool accumulate : {false, true}) {
          SCOPED_TRACE(::testing::Message() << rows << " x " << cols << " " << format_info(format).name);
          const Dtype activations = format == FormatId::f16 ? Dtype::f16 : Dtype::bf16;
          expect_right({.parts = {&w},
                        .activations = activations,
                        .result = accumulate ? Dtype::f32 : activations,
                        .tokens = rows > 10000 ? std::min(tokens, 24) : tokens,
                        .scale = format == FormatId::f8,
                        .bias = tokens == 40,
                        .accumulate = accumulate,
                        .padding = 8});
        }
      }
    }
  }
}

/// Several tiles for each block, of more columns than shared memory holds of x.
TEST_F(LinearOnGpu, TakesTileAfterTile) {
  for (const FormatId format : {FormatId::bf16, FormatId::q4_k, FormatId::q8_0}) {
    const RandomWeight w = random_weight(format, 20000, 1536, 2);
    for (const int tokens : {1, 3, 8}) {
      for (const bool invariant : {false, true}) {
        SCOPED_TRACE(::testing::Message() << format_info(format).name << ", " << tokens << " tokens, " << invariant);
        expect_right({.parts = {&w}, .result = Dtype::f32, .tokens = tokens, .invariant = invariant});
      }
    }
  }
}

}  // namespace
}  // namespace quern
