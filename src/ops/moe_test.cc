#include "ops/moe.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <vector>

#include "ops/linear_testing.h"
#include "ops/select.h"

namespace quern::testing {
namespace {

constexpr int tokens = 37;
constexpr int experts = 9;
constexpr int used = 3;

/// Experts of a token, best first, and their weights.
std::vector<std::pair<int, double>> reference_choice(const float* logits, bool renormalize) {
  std::vector<int> order(experts);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int a, int b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  double sum = 0.0;
  for (int k = 0; k < (renormalize ? used : experts); ++k)
    sum += std::exp(double{logits[order[static_cast<size_t>(k)]]});
  std::vector<std::pair<int, double>> chosen;
  for (int k = 0; k < used; ++k) {
    const int expert = order[static_cast<size_t>(k)];
    chosen.emplace_back(expert, std::exp(double{logits[expert]}) / sum);
  }
  return chosen;
}

std::vector<float> some_logits() {
  std::vector<float> logits = random_floats(size_t{tokens} * experts, 1);
  logits[4] = logits[2];                                                                      // equals
  for (int e = 0; e < experts; ++e) logits[size_t{experts} + static_cast<size_t>(e)] = 0.5F;  // nothing but equals
  return logits;
}

TEST(Moe, RoutesEveryTokenToItsBestExperts) {
  at_every_level([] {
    for (const bool renormalize : {true, false}) {
      Bench bench(2);
      Exec exec = bench.exec();
      std::vector<float> logits = some_logits();

      const Routing routing = route(exec, view(logits, tokens, experts), {.used = used, .renormalize = renormalize});

      const auto* starts = routing.starts.as<int32_t>();
      ASSERT_EQ(starts[0], 0);
      ASSERT_EQ(starts[experts], tokens * used);
      for (int t = 0; t < tokens; ++t) {
        const auto chosen = reference_choice(logits.data() + t * experts, renormalize);
        for (int k = 0; k < used; ++k) {
          const auto& [expert, weight] = chosen[static_cast<size_t>(k)];
          const int32_t pair = routing.places.row<int32_t>(t)[k];
          ASSERT_TRUE(starts[expert] <= pair && pair < starts[expert + 1]) << "token " << t << " choice " << k;
          ASSERT_EQ(routing.tokens.as<int32_t>()[pair], t);
          ASSERT_NEAR(routing.weights.row<float>(t)[k], weight, 1e-6);
        }
      }
    }
  });
}

TEST(Moe, LogitsThatAreNoNumbersStillGiveARouting) {
  Bench bench(1);
  Exec exec = bench.exec();
  std::vector<float> logits(size_t{tokens} * experts, std::nanf(""));

  const Routing routing = route(exec, view(logits, tokens, experts), {.used = used, .renormalize = true});

  EXPECT_EQ(routing.starts.as<int32_t>()[experts], tokens * used);
}

TEST(Moe, ExpertsAndTheirWeightedSumMatchADoubleReference) {
  at_every_level([] {
    constexpr int rows = 40;
    constexpr int cols = 64;
    Bench bench(2);
    Exec exec = bench.exec();
    std::vector<float> logits = some_logits();
    std::vector<RandomWeight> weights;
    std::vector<Matrix> matrices(experts);
    for (unsigned e = 0; e < experts; ++e) weights.push_back(random_weight(FormatId::f32, rows, cols, e));
    for (size_t e = 0; e < experts; ++e) {
      matrices[e].parts[0] = weights[e].weight;
      matrices[e].count = 1;
      matrices[e].rows = rows;
      matrices[e].cols = cols;
    }
    const Routing routing = route(exec, view(logits, tokens, experts), {.used = used, .renormalize = true});
    std::vector<float> x = random_floats(size_t{tokens} * used * cols, 2);
    std::vector<float> y = random_floats(size_t{tokens} * rows, 3);
    const std::vector<float> before = y;

    const Tensor parts = expert_linear(exec, view(x, tokens * used, cols), matrices.data(), routing);
    combine(exec, view(y, tokens, rows), parts, routing, true);

    for (int t = 0; t < tokens; ++t) {
      const auto chosen = reference_choice(logits.data() + t * experts, true);
      for (int row = 0; row < rows; ++row) {
        double wanted = before[static_cast<size_t>(t * rows + row)];
        for (int k = 0; k < used; ++k) {
          const auto& [expert, weight] = chosen[static_cast<size_t>(k)];
          const float* input = x.data() + routing.places.row<int32_t>(t)[k] * cols;
          double dot = 0.0;
          for (int c = 0; c < cols; ++c)
            dot += double{weights[static_cast<size_t>(expert)].at(row, c)} * double{input[c]};
          wanted += weight * dot;
        }
        ASSERT_NEAR(y[static_cast<size_t>(t * rows + row)], wanted, 1e-4) << "token " << t << " row " << row;
      }
    }
  });
}

TEST(Moe, GatedExpertsEqualTheOperationsOneAfterTheOther) {
  at_every_level([] {
    constexpr int hidden = 24;
    constexpr int cols = 64;
    Bench bench(2);
    Exec exec = bench.exec();
    std::vector<float> logits = some_logits();
    std::vector<RandomWeight> weights;
    std::vector<Matrix> matrices(experts);
    for (unsigned i = 0; i < 2 * experts; ++i) weights.push_back(random_weight(FormatId::q8_0, hidden, cols, i));
    for (size_t e = 0; e < experts; ++e) {
      matrices[e].parts[0] = weights[2 * e].weight;
      matrices[e].parts[1] = weights[2 * e + 1].weight;
      matrices[e].count = 2;
      matrices[e].rows = 2 * hidden;
      matrices[e].cols = cols;
    }
    const Routing routing = route(exec, view(logits, tokens, experts), {.used = used, .renormalize = true});
    std::vector<float> x = random_floats(size_t{tokens} * cols, 2);

    const Tensor y =
        expert_gated(exec, view(x, tokens, cols), matrices.data(), routing, Activation::gelu_tanh, nullptr);

    const Tensor pairs = select_rows(exec, view(x, tokens, cols), routing.tokens);
    const Tensor expected = gated(exec, expert_linear(exec, pairs, matrices.data(), routing), Activation::gelu_tanh);
    for (int pair = 0; pair < tokens * used; ++pair) {
      for (int i = 0; i < hidden; ++i) ASSERT_EQ(y.row<float>(pair)[i], expected.row<float>(pair)[i]);
    }
  });
}

}  // namespace
}  // namespace quern::testing
