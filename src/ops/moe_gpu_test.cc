#include <numeric>

#include "ops/gpu_testing.h"
#include "ops/linear_testing.h"
#include "ops/moe.h"

namespace quern::testing {
namespace {

using MoeGpu = OnGpu;

/// Experts of two parts each, all weights in one block at equal distances or each in its own.
struct Experts {
  std::vector<RandomWeight> weights;
  std::vector<std::byte> together;
  std::vector<Matrix> matrices;
  std::vector<float> scales;  // of the rows of all experts
  int part_rows = 0;

  Experts(FormatId format, int count, int rows, int cols, bool in_one_block) : part_rows(rows) {
    for (int i = 0; i < 2 * count; ++i) weights.push_back(random_weight(format, rows, cols, static_cast<unsigned>(i)));
    const size_t bytes = (weights[0].packed.size() + 255) / 256 * 256;
    if (in_one_block) together.resize(weights.size() * bytes);
    for (size_t i = 0; i < weights.size() && in_one_block; ++i) {
      std::copy(weights[i].packed.begin(), weights[i].packed.end(), together.data() + i * bytes);
      weights[i].weight.data = together.data() + i * bytes;
    }
    scales.resize(static_cast<size_t>(2 * count * rows));
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.5F + 0.25F * static_cast<float>(i % 7);
    for (int e = 0; e < count; ++e) {
      const auto first = static_cast<size_t>(2 * e);
      Matrix matrix;
      matrix.parts[0] = weights[first].weight;
      matrix.parts[1] = weights[first + 1].weight;
      matrix.count = 2;
      matrix.rows = 2 * rows;
      matrix.cols = cols;
      float* const of_expert = scales.data() + int64_t{e} * matrix.rows;
      matrix.scale = Tensor::dense(reinterpret_cast<std::byte*>(of_expert), Dtype::f32, matrix.rows);
      matrices.push_back(matrix);
    }
  }

  /// `deviation`: the root of the sum of its squared terms.
  double dot(int expert, int row, FloatMatrix& x, int pair, double* deviation = nullptr) const {
    const RandomWeight& weight = weights[static_cast<size_t>(2 * expert + row / part_rows)];
    double sum = 0.0;
    double squares = 0.0;
    for (int c = 0; c < weight.weight.cols; ++c) {
      const double term = static_cast<double>(weight.at(row % part_rows, c)) * x.get(pair, c);
      sum += term;
      squares += term * term;
    }
    const auto scale = static_cast<double>(scales[static_cast<size_t>(2 * expert * part_rows + row)]);
    if (deviation != nullptr) *deviation = scale * std::sqrt(squares);
    return sum * scale;
  }
};

/// A routing of given pairs for each expert; only what expert_linear() reads.
struct Pairs {
  std::vector<int32_t> tokens, starts, places;
  std::vector<float> weights;
  Routing routing;

  Pairs(const std::vector<int32_t>& counts, int32_t steps_tokens) {
    starts.push_back(0);
    for (const int32_t count : counts) starts.push_back(starts.back() + count);
    tokens.resize(static_cast<size_t>(starts.back()));
    places.resize(tokens.size());
    weights.resize(tokens.size());
    const auto used = static_cast<int32_t>(tokens.size()) / steps_tokens;
    routing = {quern::view(tokens), quern::view(starts),
               Tensor::dense(reinterpret_cast<std::byte*>(places.data()), Dtype::i32, steps_tokens, used),
               Tensor::dense(reinterpret_cast<std::byte*>(weights.data()), Dtype::f32, steps_tokens, used)};
  }
  int expert_of(int pair) const {
    int expert = 0;
    while (starts[static_cast<size_t>(expert) + 1] <= pair) ++expert;
    return expert;
  }
};

/// `rounded`: weights may have been rounded to the type.
void expect_products(const Experts& experts, FloatMatrix& x, Dtype type, const Pairs& pairs, const Tensor& y,
                     bool rounded = false) {
  for (int pair = 0; pair < y.dims[0]; ++pair) {
    const int expert = pairs.expert_of(pair);
    for (int row = 0; row < y.dims[1]; row += 1 + pair % 5) {
      double deviation = 0.0;
      const double expected = experts.dot(expert, row, x, pair, &deviation);
      ASSERT_NEAR(float_at(y, pair, row), expected,
                  2e-4 + 4e-3 * (type == Dtype::f32 ? 0.0 : 1.0) + 2 * rounding(type) * std::abs(expected) +
                      (rounded ? 8 * rounding(type) * deviation : 0.0))
          << "pair " << pair << " expert " << expert << " row " << row;
    }
  }
}

TEST_F(MoeGpu, MultipliesEveryFormatAndType) {
  const std::vector<int32_t> counts{0, 3, 1, 0, 20, 70, 2};
  const Pairs pairs(counts, 48);
  for (const Dtype type : activation_types) {
    for (const FormatId format : all_format_ids) {
      for (const int cols : {256, 768}) {
        SCOPED_TRACE(std::string(dtype_name(type)) + " " + std::string(format_info(format).name));
        const Experts experts(format, 7, 40, cols, cols == 256);
        FloatMatrix x = FloatMatrix::random(type, 96, cols, 8, 3);
        for (const bool invariant : {true, false}) {
          TestDevice device;
          Exec exec = device.exec();
          exec.activations = type;
          exec.queue.batch_invariant = invariant;

          const Tensor y = expert_linear(exec, x.tensor(), experts.matrices.data(), pairs.routing);

          expect_products(experts, x, type, pairs, y);
        }
      }
    }
  }
}

TEST_F(MoeGpu, TakesColumnsThatAreNoWholeUnits) {
  const std::vector<int32_t> counts{2, 0, 9, 1};
  const Pairs pairs(counts, 6);
  for (const FormatId format : {FormatId::bf16, FormatId::q4_0}) {
    const Experts experts(format, 4, 24, 96, true);
    for (const int32_t padding : {8, 3}) {
      FloatMatrix x = FloatMatrix::random(Dtype::bf16, 12, 96, padding, 3);
      TestDevice device;
      Exec exec = device.exec();
      exec.activations = Dtype::bf16;

      const Tensor y = expert_linear(exec, x.tensor(), experts.matrices.data(), pairs.routing);

      expect_products(experts, x, Dtype::bf16, pairs, y);
    }
  }
}

double silu(double x) { return x / (1 + std::exp(-x)); }

TEST_F(MoeGpu, GatesEveryFormatAndTypeForTheTokensOfPairs) {
  const std::vector<int32_t> counts{0, 3, 1, 0, 20, 70, 2};
  Pairs pairs(counts, 48);
  for (size_t i = 0; i < pairs.tokens.size(); ++i) pairs.tokens[i] = static_cast<int32_t>(i * 31 % 48);
  for (const Dtype type : activation_types) {
    for (const FormatId format : all_format_ids) {
      for (const int cols : {256, 768}) {
        SCOPED_TRACE(std::string(dtype_name(type)) + " " + std::string(format_info(format).name));
        const Experts experts(format, 7, 40, cols, cols == 256);
        std::vector<Matrix> next = experts.matrices;
        for (Matrix& matrix : next) matrix.count = 1;
        FloatMatrix x = FloatMatrix::random(type, 48, cols, 8, 3, 0.1F);
        for (const bool invariant : {true, false}) {
          TestDevice device;
          Exec exec = device.exec();
          exec.activations = type;
          exec.queue.batch_invariant = invariant;

          const Tensor y =
              expert_gated(exec, x.tensor(), experts.matrices.data(), pairs.routing, Activation::silu, next.data());

          ASSERT_EQ(y.dims[1], 40);
          for (int pair = 0; pair < 96; ++pair) {
            const int expert = pairs.expert_of(pair);
            const int token = pairs.tokens[static_cast<size_t>(pair)];
            for (int row = 0; row < 40; row += 1 + pair % 5) {
              const double gate = experts.dot(expert, row, x, token);
              const double up = experts.dot(expert, 40 + row, x, token);
              const double expected = silu(gate) * up;
              ASSERT_NEAR(float_at(y, pair, row), expected,
                          1e-4 + 4 * rounding(type) * (std::abs(gate) + 1) * (std::abs(up) + 1))
                  << "pair " << pair << " row " << row;
            }
          }
        }
      }
    }
  }
}

/// Also one whose token has an expert several times, as one has that is not finite.
TEST_F(MoeGpu, MultipliesTheExpertsOfOneToken) {
  constexpr int rows = 42;
  for (const std::vector<int32_t>& counts : {std::vector<int32_t>{1, 0, 1, 1, 0, 0, 1}, {0, 4, 0, 0, 1, 0, 0}}) {
    const Pairs pairs(counts, 1);
    const auto all = static_cast<int>(pairs.tokens.size());
    for (const Dtype type : activation_types) {
      for (const FormatId format : {FormatId::bf16, FormatId::f16, FormatId::f8, FormatId::f8_block, FormatId::q4_0}) {
        for (const int cols : {256, 768, 2048}) {
          SCOPED_TRACE(std::string(dtype_name(type)) + " " + std::string(format_info(format).name));
          const Experts experts(format, 7, rows, cols, true);
          std::vector<Matrix> single = experts.matrices;
          for (Matrix& matrix : single) {
            matrix.count = 1;
            matrix.rows = rows;
          }
          FloatMatrix x = FloatMatrix::random(type, all, cols, 8, 3, 0.1F);
          TestDevice device;
          Exec exec = device.exec();
          exec.activations = type;

          const Tensor products = expert_linear(exec, x.tensor(), single.data(), pairs.routing);
          const Tensor gates = expert_gated(exec, x.tensor().rows(0, 1), experts.matrices.data(), pairs.routing,
                                            Activation::silu, single.data());

          expect_products(experts, x, type, pairs, products);
          for (int pair = 0; pair < all; ++pair) {
            for (int row = 0; row < rows; ++row) {
              const double gate = experts.dot(pairs.expert_of(pair), row, x, 0);
              const double up = experts.dot(pairs.expert_of(pair), rows + row, x, 0);
              ASSERT_NEAR(float_at(gates, pair, row), silu(gate) * up,
                          1e-4 + 4 * rounding(type) * (std::abs(gate) + 1) * (std::abs(up) + 1))
                  << "pair " << pair << " row " << row;
            }
          }
        }
      }
    }
  }
}

/// Products with one part, with two, and gated ones, of experts with many, few and no pairs: tiles that are not full.
void expect_many(const std::vector<int32_t>& counts, Dtype type, FormatId format) {
  constexpr int rows = 104;
  constexpr int cols = 256;
  SCOPED_TRACE(std::string(dtype_name(type)) + " " + std::string(format_info(format).name));
  const auto experts_count = static_cast<int>(counts.size());
  const int all = std::accumulate(counts.begin(), counts.end(), 0);
  const int tokens = all / 2;
  Pairs pairs(counts, tokens);
  for (size_t i = 0; i < pairs.tokens.size(); ++i) {
    pairs.tokens[i] = static_cast<int32_t>(i * 31 % static_cast<size_t>(tokens));
  }
  const Experts experts(format, experts_count, rows, cols, true);
  std::vector<Matrix> single = experts.matrices;
  for (Matrix& matrix : single) {
    matrix.count = 1;
    matrix.rows = rows;
  }
  TestDevice device;
  Exec exec = device.exec();
  exec.activations = type;
  exec.queue.batch_invariant = false;
  FloatMatrix x = FloatMatrix::random(type, all, cols, 8, 3);
  FloatMatrix of_tokens = FloatMatrix::random(type, tokens, cols, 8, 4, 0.1F);

  const Tensor one = expert_linear(exec, x.tensor(), single.data(), pairs.routing);
  const Tensor two = expert_linear(exec, x.tensor(), experts.matrices.data(), pairs.routing);
  const Tensor gates =
      expert_gated(exec, of_tokens.tensor(), experts.matrices.data(), pairs.routing, Activation::silu, single.data());

  expect_products(experts, x, type, pairs, one, true);
  expect_products(experts, x, type, pairs, two, true);
  for (int pair = 0; pair < all; ++pair) {
    const int expert = pairs.expert_of(pair);
    const int token = pairs.tokens[static_cast<size_t>(pair)];
    for (int row = pair % 7; row < rows; row += 7) {
      double deviations[2];
      const double gate = experts.dot(expert, row, of_tokens, token, deviations);
      const double up = experts.dot(expert, rows + row, of_tokens, token, deviations + 1);
      const double spread =
          8 * rounding(type) * (deviations[0] * (std::abs(up) + 1) + deviations[1] * (std::abs(gate) + 1));
      ASSERT_NEAR(float_at(gates, pair, row), silu(gate) * up,
                  1e-4 + 4 * rounding(type) * (std::abs(gate) + 1) * (std::abs(up) + 1) + spread)
          << "pair " << pair << " row " << row;
    }
  }
}

TEST_F(MoeGpu, MultipliesManyPairs) {
  for (const std::vector<int32_t>& counts :
       {std::vector<int32_t>{40, 0, 70, 1, 91}, {300, 0, 128, 1, 131}, {900, 0, 257, 1, 600}}) {
    expect_many(counts, Dtype::f16, FormatId::f16);
    expect_many(counts, Dtype::bf16, FormatId::bf16);
    expect_many(counts, Dtype::bf16, FormatId::q4_0);
    expect_many(counts, Dtype::f16, FormatId::q4_k);
  }
}

TEST_F(MoeGpu, MultipliesManyPairsOfEveryFormat) {
  for (const FormatId format : all_format_ids) expect_many({130, 0, 70, 1, 129}, Dtype::bf16, format);
}

/// The bits of a pair's result, however many pairs its expert has.
TEST_F(MoeGpu, APairsResultDoesNotDependOnOthersWhereBatchesMustNotMatter) {
  const Experts experts(FormatId::bf16, 2, 64, 2048, true);
  FloatMatrix x = FloatMatrix::random(Dtype::bf16, 200, 2048, 0, 4);
  const Pairs many({100, 100}, 100);
  const Pairs one({0, 1}, 1);
  TestDevice device;
  Exec exec = device.exec();
  exec.activations = Dtype::bf16;
  exec.queue.batch_invariant = true;

  const Tensor all = expert_linear(exec, x.tensor(), experts.matrices.data(), many.routing);
  const Tensor alone = expert_linear(exec, x.tensor().rows(170, 1), experts.matrices.data(), one.routing);

  for (int row = 0; row < 128; ++row) ASSERT_EQ(float_at(alone, 0, row), float_at(all, 170, row)) << row;
}

class MoeGpuRouting : public OnGpu, public ::testing::WithParamInterface<int> {};

TEST_P(MoeGpuRouting, NumbersPairsInTheOrderOfTokens) {
  const int tokens = GetParam();
  constexpr int experts = 128;
  constexpr int used = 8;
  for (const bool renormalize : {true, false}) {
    std::vector<float> logits = random_floats(static_cast<size_t>(tokens) * experts, 1);
    const auto run = [&](bool gpu) {
      testing_on_gpu() = gpu;
      auto device = std::make_unique<TestDevice>();
      Exec exec = device->exec();
      const Routing routing = route(exec, view(logits, tokens, experts), {.used = used, .renormalize = renormalize});
      testing_on_gpu() = true;
      return std::pair{std::move(device), routing};
    };
    const auto [cpu_memory, cpu] = run(false);
    const auto [gpu_memory, gpu] = run(true);

    for (int e = 0; e <= experts; ++e) ASSERT_EQ(gpu.starts.as<int32_t>()[e], cpu.starts.as<int32_t>()[e]);
    for (int i = 0; i < tokens * used; ++i) {
      ASSERT_EQ(gpu.tokens.as<int32_t>()[i], cpu.tokens.as<int32_t>()[i]) << i;
      ASSERT_EQ(gpu.places.as<int32_t>()[i], cpu.places.as<int32_t>()[i]) << i;
      ASSERT_NEAR(gpu.weights.as<float>()[i], cpu.weights.as<float>()[i], 1e-6);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tokens, MoeGpuRouting, ::testing::Values(1, 2, 33, 64, 65, 3000));

TEST_F(MoeGpu, CombinesEveryType) {
  constexpr int tokens = 21;
  constexpr int used = 3;
  for (const Dtype type : activation_types) {
    for (const int dim : {8, 20, 2048}) {
      for (const bool accumulate : {true, false}) {
        TestDevice device;
        Exec exec = device.exec();
        exec.activations = type;
        std::vector<int32_t> places(tokens * used);
        std::iota(places.rbegin(), places.rend(), 0);
        std::vector<int32_t> of_pairs(places.size());
        std::vector<float> weights = random_floats(places.size(), 1);
        const Routing routing{quern::view(of_pairs),
                              {},
                              Tensor::dense(reinterpret_cast<std::byte*>(places.data()), Dtype::i32, tokens, used),
                              view(weights, tokens, used)};
        FloatMatrix x = FloatMatrix::random(type, tokens * used, dim, 8, 2);
        FloatMatrix y = FloatMatrix::random(Dtype::f32, tokens, dim, 8, 3);
        FloatMatrix before = y;

        combine(exec, y.tensor(), x.tensor(), routing, accumulate);

        for (int t = 0; t < tokens; ++t) {
          for (int i = 0; i < dim; ++i) {
            double expected = accumulate ? before.get(t, i) : 0.0;
            for (int k = 0; k < used; ++k) {
              const auto at = static_cast<size_t>(t * used + k);
              expected += static_cast<double>(weights[at]) * x.get(places[at], i);
            }
            ASSERT_NEAR(y.get(t, i), expected, 2e-6) << dtype_name(type) << " token " << t << " column " << i;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace quern::testing
