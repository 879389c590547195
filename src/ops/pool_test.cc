#include "ops/pool.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/test_device.h"

namespace quern {
namespace {

constexpr int32_t dim = 300;

/// Steps of sequences by row; sums begin as NaNs.
class Pooled {
 public:
  struct Part {
    int32_t row, begin, count;  // tokens [begin, begin + count) of that row
  };

  std::vector<std::vector<float>> step(const std::vector<Part>& parts, std::vector<TestMatrix>& sequences,
                                       TokenPool kind = TokenPool::mean) {
    std::vector<int32_t> starts{0};
    std::vector<int32_t> rows;
    std::vector<int32_t> positions;
    for (const Part& part : parts) {
      rows.push_back(part.row);
      for (int32_t i = 0; i < part.count; ++i) positions.push_back(part.begin + i);
      starts.push_back(static_cast<int32_t>(positions.size()));
    }
    TestMatrix x(static_cast<int32_t>(positions.size()), dim);
    for (size_t p = 0; p < parts.size(); ++p) {
      for (int32_t i = 0; i < parts[p].count; ++i) {
        for (int32_t col = 0; col < dim; ++col) {
          x.at(starts[p] + i, col) = sequences[static_cast<size_t>(parts[p].row)].at(parts[p].begin + i, col);
        }
      }
    }
    TestMatrix y(static_cast<int32_t>(parts.size()), dim);
    Exec exec = device_.exec();
    mean_pool_into(exec, y.tensor(), sums_.tensor(), x.tensor(), {view(starts), view(rows), view(positions)}, kind);
    std::vector<std::vector<float>> out;
    for (int32_t i = 0; i < y.rows(); ++i) out.emplace_back(&y.at(i, 0), &y.at(i, 0) + dim);
    return out;
  }

 private:
  TestDevice device_;
  TestMatrix sums_{4, dim};
};

double mean_of(TestMatrix& x, int32_t tokens, int32_t col) {
  double sum = 0;
  for (int32_t i = 0; i < tokens; ++i) sum += x.get(i, col);
  return sum / tokens;
}

std::vector<TestMatrix> four_sequences() {
  std::vector<TestMatrix> sequences;
  for (uint32_t i = 0; i < 4; ++i) sequences.push_back(TestMatrix::random(70, dim, 10 + i));
  return sequences;
}

TEST(MeanPool, IsTheMeanOfEachSequence) {
  at_every_isa([] {
    std::vector<TestMatrix> sequences = four_sequences();
    Pooled pooled;

    const auto means = pooled.step({{2, 0, 70}, {0, 0, 1}, {3, 0, 17}}, sequences);

    for (int32_t col = 0; col < dim; ++col) {
      const auto at = static_cast<size_t>(col);
      EXPECT_NEAR(means[0][at], mean_of(sequences[2], 70, col), 1e-6);
      EXPECT_NEAR(means[1][at], mean_of(sequences[0], 1, col), 1e-6);
      EXPECT_NEAR(means[2][at], mean_of(sequences[3], 17, col), 1e-6);
    }
  });
}

TEST(MeanPool, HasTheOtherWaysOfSentenceTransformers) {
  at_every_isa([] {
    std::vector<TestMatrix> sequences = four_sequences();
    for (const TokenPool kind : {TokenPool::largest, TokenPool::weighted_mean, TokenPool::mean_sqrt_len}) {
      Pooled pooled;

      pooled.step({{2, 0, 20}}, sequences, kind);
      const auto got = pooled.step({{2, 20, 50}, {0, 0, 1}}, sequences, kind);

      for (int32_t col = 0; col < dim; ++col) {
        double largest = -1e30;
        double sum = 0;
        double weighted = 0;
        for (int32_t i = 0; i < 70; ++i) {
          const double value = sequences[2].get(i, col);
          largest = std::max(largest, value);
          sum += value;
          weighted += value * (i + 1);
        }
        const double wanted = kind == TokenPool::largest         ? largest
                              : kind == TokenPool::weighted_mean ? weighted / (70 * 71 / 2)
                                                                 : sum / std::sqrt(70.0);
        EXPECT_NEAR(got[0][static_cast<size_t>(col)], wanted, 1e-5);
        EXPECT_EQ(got[1][static_cast<size_t>(col)], sequences[0].get(0, col));
      }
    }
  });
}

TEST(MeanPool, ASequenceInSeveralStepsGivesTheSameBits) {
  at_every_isa([] {
    std::vector<TestMatrix> sequences = four_sequences();
    Pooled whole;
    Pooled parts;
    const auto expected = whole.step({{1, 0, 70}}, sequences)[0];

    parts.step({{0, 0, 3}, {1, 0, 16}}, sequences);
    parts.step({{1, 16, 1}}, sequences);
    const auto got = parts.step({{2, 0, 5}, {1, 17, 53}}, sequences)[1];

    EXPECT_EQ(std::memcmp(got.data(), expected.data(), expected.size() * sizeof(float)), 0);
  });
}

TEST(MeanPool, ARowIsUsedAgainFromItsStart) {
  at_every_isa([] {
    std::vector<TestMatrix> sequences = four_sequences();
    Pooled pooled;
    const auto first = pooled.step({{1, 0, 9}}, sequences)[0];
    EXPECT_EQ(pooled.step({{1, 0, 9}}, sequences)[0], first);
  });
}

}  // namespace
}  // namespace quern
