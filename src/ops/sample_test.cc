#include "ops/sample.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "ops/philox.h"
#include "ops/test_device.h"

namespace quern {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// Rows of equal or different logits, and what was sampled from them.
std::vector<Sampled> sample_all(TestMatrix& logits, const std::vector<SampleRow>& rows, int threads = 2) {
  TestDevice device(threads);
  Exec exec = device.exec();
  std::vector<Sampled> results(rows.size());
  sample(exec, logits.tensor(), rows, results);
  return results;
}

Sampled sample_one(std::vector<float> logits, const SampleRow& row) {
  TestMatrix matrix(1, static_cast<int32_t>(logits.size()));
  for (int32_t i = 0; i < matrix.cols(); ++i) matrix.at(0, i) = logits[static_cast<size_t>(i)];
  return sample_all(matrix, {row})[0];
}

/// The distribution that `row` asks for, in double and by sorting.
std::vector<double> reference(TestMatrix& logits, const SampleRow& row) {
  const auto count = static_cast<size_t>(logits.cols());
  std::vector<double> x(count);
  for (size_t i = 0; i < count; ++i) x[i] = logits.get(0, static_cast<int32_t>(i));
  for (const auto& [token, bias] : row.biases) x[static_cast<size_t>(token)] += static_cast<double>(bias);
  for (const TokenCount& entry : row.counts) {
    double& logit = x[static_cast<size_t>(entry.token)];
    const auto repetition = static_cast<double>(row.repetition_penalty);
    logit = logit > 0 ? logit / repetition : logit * repetition;
    if (entry.outputs > 0)
      logit -= entry.outputs * static_cast<double>(row.frequency_penalty) + static_cast<double>(row.presence_penalty);
  }
  const double best = *std::max_element(x.begin(), x.end());
  for (double& value : x) value = std::exp((value - best) / static_cast<double>(row.temperature));
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return x[a] > x[b] || (x[a] == x[b] && a < b); });
  for (size_t i = 0; i < count; ++i) {
    if (x[order[i]] < static_cast<double>(row.min_p)) x[order[i]] = 0;
    if (row.top_k > 0 && i >= static_cast<size_t>(row.top_k)) x[order[i]] = 0;
  }
  double total = std::accumulate(x.begin(), x.end(), 0.0);
  double before = 0;
  for (const size_t i : order) {
    const double weight = x[i];
    if (before >= static_cast<double>(row.top_p) * total) x[i] = 0;
    before += weight;
  }
  total = std::accumulate(x.begin(), x.end(), 0.0);
  for (double& value : x) value /= total;
  return x;
}

/// Draws `draws` tokens at as many positions and compares their counts with the reference.
void expect_fits(TestMatrix& logits, SampleRow row, int32_t draws) {
  const std::vector<double> expected = reference(logits, row);
  TestMatrix all(draws, logits.cols(), 0);
  std::vector<SampleRow> rows;
  for (int32_t i = 0; i < draws; ++i) {
    for (int32_t j = 0; j < logits.cols(); ++j) all.at(i, j) = logits.at(0, j);
    row.position = i;
    rows.push_back(row);
  }
  std::vector<int> counts(expected.size());
  for (const Sampled& result : sample_all(all, rows)) {
    ASSERT_EQ(result.status, SampleStatus::ok);
    ASSERT_GT(expected[static_cast<size_t>(result.token)], 0.0) << "token " << result.token << " is cut off";
    ++counts[static_cast<size_t>(result.token)];
  }
  double statistic = 0;
  double rest_expected = 0;
  double rest_count = 0;
  int cells = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double mean = expected[i] * draws;
    if (mean < 5) {
      rest_expected += mean;
      rest_count += counts[i];
      continue;
    }
    statistic += (counts[i] - mean) * (counts[i] - mean) / mean;
    ++cells;
  }
  if (rest_expected >= 5) {
    statistic += (rest_count - rest_expected) * (rest_count - rest_expected) / rest_expected;
    ++cells;
  }
  const double freedom = std::max(1, cells - 1);
  EXPECT_LT(statistic, freedom + 4 * std::sqrt(2 * freedom) + 2) << cells << " cells";
}

struct Case {
  const char* name;
  float temperature;
  int32_t top_k;
  float top_p;
  float min_p;
};

class SampleDistribution : public testing::TestWithParam<Case> {};

TEST_P(SampleDistribution, FitsADoubleReference) {
  const Case& param = GetParam();
  SampleRow row;
  row.temperature = param.temperature;
  row.top_k = param.top_k;
  row.top_p = param.top_p;
  row.min_p = param.min_p;
  row.seed = 4711;
  TestMatrix logits = TestMatrix::random(1, 1301, 3, 3.0F);
  at_every_isa([&] { expect_fits(logits, row, 3000); });
}

INSTANTIATE_TEST_SUITE_P(Cases, SampleDistribution,
                         testing::Values(Case{"Plain", 1.0F, 0, 1.0F, 0.0F}, Case{"Cold", 0.5F, 0, 1.0F, 0.0F},
                                         Case{"Hot", 1.7F, 0, 1.0F, 0.0F}, Case{"TopK", 1.0F, 20, 1.0F, 0.0F},
                                         Case{"TopP", 1.0F, 0, 0.8F, 0.0F}, Case{"MinP", 1.0F, 0, 1.0F, 0.1F},
                                         Case{"TopKTopP", 1.3F, 50, 0.9F, 0.0F}, Case{"All", 1.5F, 100, 0.95F, 0.05F},
                                         Case{"TinyTopP", 1.0F, 0, 1e-6F, 0.0F},
                                         Case{"WideTopP", 3.0F, 0, 0.99F, 0.0F}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Sample, FitsAReferenceWithPenaltiesAndBiases) {
  TestMatrix logits = TestMatrix::random(1, 700, 8, 3.0F);
  std::vector<TokenCount> counts;
  for (int32_t i = 0; i < 700; i += 3) counts.push_back({i, i % 4});
  const std::vector<std::pair<int32_t, float>> biases{{5, 9.0F}, {6, -3.0F}, {600, 8.5F}};
  SampleRow row;
  row.repetition_penalty = 1.2F;
  row.frequency_penalty = 0.4F;
  row.presence_penalty = 0.7F;
  row.seed = 9;
  row.counts = counts;
  row.biases = biases;
  at_every_isa([&] { expect_fits(logits, row, 3000); });
}

TEST(Sample, DependsOnNothingElseInTheBatchNorOnThreads) {
  TestMatrix logits = TestMatrix::random(40, 997, 21, 2.5F);
  std::vector<SampleRow> rows(40);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].seed = i * 77;
    rows[i].position = static_cast<int64_t>(i) * 5;
    rows[i].top_p = i % 2 == 0 ? 0.9F : 1.0F;
    rows[i].top_k = i % 3 == 0 ? 40 : 0;
    rows[i].temperature = i % 7 == 0 ? 0.0F : 1.2F;
    rows[i].logprobs = static_cast<int32_t>(i % 4) - 1;
  }
  at_every_isa([&] {
    const std::vector<Sampled> together = sample_all(logits, rows, 4);

    for (int32_t i = 0; i < 40; ++i) {
      TestMatrix alone(1, logits.cols());
      for (int32_t j = 0; j < logits.cols(); ++j) alone.at(0, j) = logits.at(i, j);
      const Sampled result = sample_all(alone, {rows[static_cast<size_t>(i)]}, 1)[0];
      EXPECT_EQ(result.token, together[static_cast<size_t>(i)].token);
      EXPECT_EQ(result.logprob, together[static_cast<size_t>(i)].logprob);
    }
  });
}

TEST(Sample, TakesTheBestTokenAtTemperatureZeroAndTheLowestOfEquals) {
  at_every_isa([] {
    std::vector<float> logits(3000, -1.0F);
    logits[1234] = 5.0F;
    logits[1235] = 5.0F;
    logits[2900] = 5.0F;
    EXPECT_EQ(sample_one(logits, {.temperature = 0}).token, 1234);
    EXPECT_EQ(sample_one({-2.0F}, {.temperature = 0}).token, 0);
    EXPECT_EQ(sample_one({-3.0F, -2.0F, -2.0F}, {.temperature = 0}).token, 1);
  });
}

TEST(Sample, KeepsTheLowestTokensOfEqualLogits) {
  at_every_isa([] {
    const std::vector<float> logits(100, 0.25F);
    for (int64_t position = 0; position < 50; ++position) {
      EXPECT_LT(sample_one(logits, {.top_k = 3, .seed = 1, .position = position}).token, 3);
      EXPECT_LT(sample_one(logits, {.top_p = 0.1F, .seed = 1, .position = position}).token, 11);
      EXPECT_EQ(sample_one(logits, {.top_k = 1, .seed = 1, .position = position}).token, 0);
    }
  });
}

TEST(Sample, ReportsLogprobsOfTheLogitsAsTheyCame) {
  TestMatrix logits = TestMatrix::random(1, 1500, 5, 4.0F);
  const std::vector<int32_t> banned{3, 4, 5};
  std::vector<double> expected(1500);
  double total = 0;
  for (int32_t i = 0; i < 1500; ++i) total += std::exp(logits.get(0, i));
  for (int32_t i = 0; i < 1500; ++i) expected[static_cast<size_t>(i)] = logits.get(0, i) - std::log(total);
  at_every_isa([&] {
    for (const int32_t forced : {-1, 0, 777, 1499}) {
      SampleRow row{.temperature = 0, .forced = forced, .logprobs = 20};
      row.banned = banned;

      const Sampled result = sample_all(logits, {row})[0];

      if (forced >= 0) EXPECT_EQ(result.token, forced);
      EXPECT_NEAR(static_cast<double>(result.logprob), expected[static_cast<size_t>(result.token)], 2e-6);
      ASSERT_EQ(result.top_count, 20);
      std::vector<double> sorted = expected;
      std::sort(sorted.rbegin(), sorted.rend());
      for (size_t i = 0; i < 20; ++i) {
        EXPECT_NEAR(static_cast<double>(result.top[i].logprob), sorted[i], 2e-6);
        EXPECT_NEAR(expected[static_cast<size_t>(result.top[i].token)], sorted[i], 1e-12);
        if (result.top[i].token == result.token) EXPECT_EQ(result.top[i].logprob, result.logprob);
      }
    }
  });
}

TEST(Sample, FillsTopLogprobsOfSmallVocabularies) {
  const Sampled result = sample_one({1.0F, 3.0F, 2.0F}, {.logprobs = 5});

  ASSERT_EQ(result.top_count, 3);
  EXPECT_EQ(result.top[0].token, 1);
  EXPECT_EQ(result.top[1].token, 2);
  EXPECT_EQ(result.top[2].token, 0);
}

TEST(Sample, NeverTakesWhatIsBannedOrNotAllowed) {
  at_every_isa([] {
    std::vector<float> logits(70, 0.0F);
    logits[10] = 9.0F;
    const std::vector<int32_t> banned{10, 69, 1000, -1};
    const std::vector<uint32_t> allowed{1U << 10 | 1U << 31, 0, 1U << 5 | 1U << 0};
    SampleRow row;
    row.banned = banned;
    row.allowed = allowed;
    std::map<int32_t, int> seen;
    for (row.position = 0; row.position < 60; ++row.position) ++seen[sample_one(logits, row).token];

    EXPECT_EQ(seen.size(), 2U);
    EXPECT_GT(seen[31], 0);
    EXPECT_GT(seen[64], 0);
  });
}

TEST(Sample, SaysWhenNothingIsAllowed) {
  const std::vector<uint32_t> none{0};
  for (const float temperature : {0.0F, 1.0F}) {
    SampleRow row{.temperature = temperature};
    row.allowed = none;
    const Sampled result = sample_one({1.0F, 2.0F}, row);
    EXPECT_EQ(result.status, SampleStatus::nothing_allowed);
    EXPECT_EQ(result.token, -1);
  }
}

TEST(Sample, C9SaysWhichRowsAreNotFiniteAndGoesOnWithTheOthers) {
  at_every_isa([] {
    for (const float poison : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
      for (const int32_t place : {0, 511, 600, 1028}) {
        TestMatrix logits = TestMatrix::random(3, 1029, 7);
        logits.at(1, place) = poison;
        std::vector<SampleRow> rows(3);
        rows[0].temperature = 0;

        const std::vector<Sampled> results = sample_all(logits, rows);

        EXPECT_EQ(results[0].status, SampleStatus::ok);
        EXPECT_EQ(results[1].status, SampleStatus::not_finite);
        EXPECT_EQ(results[1].token, -1);
        EXPECT_EQ(results[2].status, SampleStatus::ok);
      }
    }
  });
}

TEST(Sample, KeepsTokensWhereTheNextStepLooksForThem) {
  at_every_isa([] {
    constexpr int32_t count = 300;
    TestMatrix logits = TestMatrix::random(count, 40, 8);
    logits.at(6, 1) = infinity;
    std::vector<SampleRow> rows(count);
    for (int32_t i = 0; i < count; ++i) {
      auto& row = rows[static_cast<size_t>(i)];
      row.seed = static_cast<uint64_t>(i);
      if (i % 3 == 0) row.next = count - 1 - i;
    }
    std::vector<Sampled> results(count);
    std::vector<int32_t> next(count, -7);
    TestDevice device;
    Exec exec = device.exec();

    sample(exec, logits.tensor(), rows, results, view(next));

    for (int32_t i = 0; i < count; ++i) {
      const int32_t expected = i % 3 == 0 ? results[static_cast<size_t>(i)].token : -7;
      ASSERT_EQ(next[static_cast<size_t>(count - 1 - i)], expected) << i;
    }
    EXPECT_EQ(next[count - 1 - 6], -1);
  });
}

TEST(Sample, SurvivesExtremeParameters) {
  at_every_isa([] {
    const std::vector<float> logits{-3e38F, 3e38F, 0.0F};
    EXPECT_EQ(sample_one(logits, {.temperature = 1e-4F}).token, 1);
    EXPECT_EQ(sample_one(logits, {.top_p = 0.0F}).token, 1);
    EXPECT_EQ(sample_one(logits, {.min_p = 1.0F, .top_k = 1 << 30}).token, 1);
  });
}

TEST(Philox, GivesThePublishedWords) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (std::array<uint32_t, 4>{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  EXPECT_EQ(philox({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0}),
            (std::array<uint32_t, 4>{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(TokenCounts, CountsEveryTokenOnce) {
  TokenCounts counts;
  std::map<int32_t, int32_t> expected;
  std::mt19937 generator(3);
  std::vector<int32_t> prompt;
  for (int i = 0; i < 500; ++i) prompt.push_back(static_cast<int32_t>(generator() % 1000));
  for (const int32_t token : prompt) expected[token] += 0;
  counts.add_prompt(prompt);
  for (int i = 0; i < 3000; ++i) {
    const auto token = i % 2 == 0 ? 0 : static_cast<int32_t>(generator() % 150000);
    ++expected[token];
    counts.add_output(token);
  }

  EXPECT_EQ(counts.entries().size(), expected.size());
  for (const TokenCount& entry : counts.entries()) EXPECT_EQ(entry.outputs, expected.at(entry.token));
  counts.clear();
  EXPECT_TRUE(counts.entries().empty());
}

TEST(TokenCounts, ForgetsWhatLeavesItsWindow) {
  TokenCounts counts;
  std::mt19937 generator(5);
  std::vector<std::pair<int32_t, bool>> added;
  for (size_t i = 0; i < 5000; ++i) {
    const auto token = static_cast<int32_t>(generator() % 97) * 128;
    const bool output = i >= 50;
    output ? counts.add_output(token) : counts.add_prompt({&token, 1});
    added.emplace_back(token, output);
    if (i >= 40) counts.remove(added[i - 40].first, added[i - 40].second);
    if (i % 100 != 99) continue;
    std::map<int32_t, int32_t> expected;
    for (size_t k = i - 39; k <= i; ++k) expected[added[k].first] += added[k].second ? 1 : 0;

    EXPECT_EQ(counts.entries().size(), expected.size());
    for (const TokenCount& entry : counts.entries()) EXPECT_EQ(entry.outputs, expected.at(entry.token));
  }
}

}  // namespace
}  // namespace quern
