// Logprobs of whole rows, against values computed by hand: the logits are logarithms of the probabilities.
#include "engine/wide_logprobs.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "ops/sample.h"

namespace quern {
namespace {

/// Probabilities 1/10, 4/10, 2/10, 2/10, 1/10, whose logits are all 3 more than they need be.
const std::vector<float> logits = [] {
  std::vector<float> values;
  for (const double part : {0.1, 0.4, 0.2, 0.2, 0.1}) values.push_back(static_cast<float>(std::log(part) + 3));
  return values;
}();

std::vector<int32_t> tokens_of(const TokenLogprobs& made) {
  std::vector<int32_t> tokens;
  for (const auto& [token, logprob] : made.top) tokens.push_back(token);
  return tokens;
}

TEST(WideLogprobs, AreOfTheWholeVocabularyTheBestFirst) {
  const TokenLogprobs made = wide_logprobs(logits, 3, {.best = 1'000'000});

  EXPECT_NEAR(made.chosen, std::log(0.2), 1e-6);
  EXPECT_EQ(made.rank, 2);
  EXPECT_EQ(tokens_of(made), (std::vector<int32_t>{1, 2, 3, 0, 4}));
  double sum = 0;
  for (const auto& [token, logprob] : made.top) sum += std::exp(static_cast<double>(logprob));
  EXPECT_NEAR(sum, 1, 1e-6);
}

TEST(WideLogprobs, AreOfNamedTokensAndTheBest) {
  const std::vector<int32_t> named{4, 0, 4, 99, -1};

  EXPECT_EQ(tokens_of(wide_logprobs(logits, 1, {.best = 0, .tokens = named})), (std::vector<int32_t>{0, 4}));
  EXPECT_EQ(tokens_of(wide_logprobs(logits, 1, {.best = 2, .tokens = named})), (std::vector<int32_t>{1, 2, 0, 4}));
  EXPECT_EQ(tokens_of(wide_logprobs(logits, 1, {.best = 5, .tokens = named})), (std::vector<int32_t>{1, 2, 3, 0, 4}));
}

TEST(WideLogprobs, CanBeLogits) {
  const TokenLogprobs made = wide_logprobs(logits, 0, {.best = 1, .logits = true});

  EXPECT_EQ(made.chosen, logits[0]);
  EXPECT_EQ(made.top.front().second, logits[1]);
}

TEST(WideLogprobs, OfTokensThatCannotBeDrawnAreMinusInfinity) {
  std::vector<float> cut = logits;
  for (const size_t token : {0U, 2U, 4U}) cut[token] = -std::numeric_limits<float>::infinity();

  const TokenLogprobs made = wide_logprobs(cut, 3, {.best = 3, .processed = true});

  EXPECT_NEAR(made.chosen, std::log(1.0 / 3), 1e-6);
  EXPECT_EQ(made.rank, 2);
  EXPECT_EQ(tokens_of(made), (std::vector<int32_t>{1, 3, 0}));
  EXPECT_NEAR(made.top[0].second, std::log(2.0 / 3), 1e-6);
  EXPECT_EQ(made.top[2].second, cut[0]);
}

TEST(WideLogprobs, AreOnlyMadeWhereKernelsTellLess) {
  const std::vector<int32_t> named{1};
  EXPECT_FALSE(LogprobsWanted{.best = max_top_logprobs}.wide());
  EXPECT_TRUE(LogprobsWanted{.best = max_top_logprobs + 1}.wide());
  EXPECT_TRUE((LogprobsWanted{.best = 0, .tokens = named}.wide()));
  EXPECT_TRUE((LogprobsWanted{.best = 0, .logits = true}.wide()));
  EXPECT_TRUE((LogprobsWanted{.best = 0, .processed = true}.wide()));
  EXPECT_FALSE((LogprobsWanted{.best = -1, .tokens = named, .logits = true}.wide()));
}

}  // namespace
}  // namespace quern
