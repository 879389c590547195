// Which experts a token goes to and with what weights, by every rule, against a double reference.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "ops/moe.h"
#include "ops/test_device.h"

namespace quern {
namespace {

struct Case {
  const char* name;
  int32_t experts;
  bool bias;
  RouterRule rule;
  bool factors = false;
};

using Score = RouterRule::Score;
using GroupScore = RouterRule::GroupScore;

const Case cases[] = {
    {"Mixtral", 8, false, {.used = 2, .renormalize = true}},
    {"Qwen2", 60, false, {.used = 4}},
    {"ScaledSoftmax", 64, false, {.used = 6, .scale = 1.5F}},
    {"DeepSeekV2", 160, false, {.used = 6, .scale = 16.0F, .groups = 8, .used_groups = 3}},
    {"DeepSeekV3",
     256,
     true,
     {.used = 8,
      .renormalize = true,
      .score = Score::sigmoid,
      .scale = 2.5F,
      .groups = 8,
      .used_groups = 4,
      .group_score = GroupScore::best_two}},
    {"Glm", 128, true, {.used = 8, .renormalize = true, .score = Score::sigmoid}},
    {"Sigmoid", 10, false, {.used = 1, .score = Score::sigmoid}},
    {"SoftmaxWithBias", 33, true, {.used = 5, .renormalize = true}},
    {"GroupsOfTwo",
     12,
     true,
     {.used = 4, .score = Score::sigmoid, .groups = 6, .used_groups = 2, .group_score = GroupScore::best_two}},
    {"ManyExperts", 600, true, {.used = 8, .score = Score::sigmoid}},
    {"Gemma4", 128, false, {.used = 8, .renormalize = true}, true},
    {"ManyFactors", 300, false, {.used = 3, .scale = 0.5F}, true},
    {"FactorsAndBias", 16, true, {.used = 2, .renormalize = true, .score = Score::sigmoid}, true},
};

/// The `count` largest, of equals the first.
std::vector<int> largest(const std::vector<double>& values, int count) {
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    const double first = values[static_cast<size_t>(a)];
    const double second = values[static_cast<size_t>(b)];
    return first != second ? first > second : a < b;
  });
  order.resize(static_cast<size_t>(count));
  return order;
}

/// Experts of a token, best first, and their weights.
std::vector<std::pair<int, double>> reference(const Case& test, const float* logits, const float* bias,
                                              const float* factors) {
  const RouterRule& rule = test.rule;
  std::vector<double> scores(logits, logits + test.experts);
  double sum = 0.0;
  for (const double logit : scores) sum += std::exp(logit);
  for (double& score : scores)
    score = rule.score == Score::sigmoid ? 1 / (1 + std::exp(-score)) : std::exp(score) / sum;
  std::vector<double> choice = scores;
  for (size_t e = 0; e < choice.size() && test.bias; ++e) choice[e] += static_cast<double>(bias[e]);

  const size_t size = choice.size() / static_cast<size_t>(rule.groups);
  std::vector<double> of_groups;
  for (auto group = choice.begin(); group != choice.end(); group += static_cast<std::ptrdiff_t>(size)) {
    std::vector<double> sorted(group, group + static_cast<std::ptrdiff_t>(size));
    std::sort(sorted.rbegin(), sorted.rend());
    of_groups.push_back(rule.group_score == GroupScore::best ? sorted[0] : sorted[0] + sorted[1]);
  }
  const std::vector<int> kept = largest(of_groups, rule.used_groups);
  for (size_t e = 0; e < choice.size(); ++e) {
    const bool stays = std::find(kept.begin(), kept.end(), static_cast<int>(e / size)) != kept.end();
    if (!stays) choice[e] = -INFINITY;
  }
  std::vector<std::pair<int, double>> chosen;
  double total = 0.0;
  for (const int e : largest(choice, rule.used)) {
    chosen.emplace_back(e, scores[static_cast<size_t>(e)]);
    total += chosen.back().second;
  }
  for (auto& [expert, weight] : chosen) {
    weight *= rule.renormalize ? static_cast<double>(rule.scale) / total : static_cast<double>(rule.scale);
    if (test.factors) weight *= static_cast<double>(factors[expert]);
  }
  return chosen;
}

class Route : public testing::TestWithParam<Case> {};

TEST_P(Route, AgreesWithADoubleReference) {
  at_every_isa([&] {
    const Case& test = GetParam();
    for (const int32_t tokens : {1, 7, 150}) {
      TestDevice device;
      Exec exec = device.exec();
      TestMatrix logits = TestMatrix::random(tokens, test.experts, 1, 2.0F);
      std::vector<float> bias, factors;
      for (int32_t e = 0; e < test.experts; ++e) {
        bias.push_back(0.3F * static_cast<float>(std::sin(3.0 * e)));
        factors.push_back(0.5F + static_cast<float>(std::cos(2.0 * e)));
      }

      RouterNumbers numbers;
      if (test.bias) numbers.bias = view(bias);
      if (test.factors) numbers.factors = view(factors);
      const Routing routing = route(exec, logits.tensor(), test.rule, numbers);

      const auto* starts = routing.starts.as<int32_t>();
      ASSERT_EQ(starts[0], 0);
      ASSERT_EQ(starts[test.experts], tokens * test.rule.used);
      for (int32_t t = 0; t < tokens; ++t) {
        const auto chosen = reference(test, &logits.at(t, 0), bias.data(), factors.data());
        for (int32_t k = 0; k < test.rule.used; ++k) {
          const auto& [expert, weight] = chosen[static_cast<size_t>(k)];
          const int32_t pair = routing.places.row<int32_t>(t)[k];
          ASSERT_TRUE(starts[expert] <= pair && pair < starts[expert + 1]) << "token " << t << " choice " << k;
          ASSERT_EQ(routing.tokens.as<int32_t>()[pair], t);
          ASSERT_NEAR(value_at(routing.weights, t, k), weight, 2e-6 * std::fabs(weight) + 1e-9);
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Rules, Route, testing::ValuesIn(cases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(RouteOfNothing, LogitsThatAreNoNumbersStillGiveARouting) {
  at_every_isa([] {
    TestDevice device;
    Exec exec = device.exec();
    std::vector<float> logits(size_t{3} * 8, std::nanf(""));
    const Tensor matrix = Tensor::dense(reinterpret_cast<std::byte*>(logits.data()), Dtype::f32, 3, 8);
    const RouterRule rule{.used = 2, .score = Score::sigmoid, .groups = 4, .used_groups = 2};

    const Routing routing = route(exec, matrix, rule);

    EXPECT_EQ(routing.starts.as<int32_t>()[8], 6);
  });
}

}  // namespace
}  // namespace quern
