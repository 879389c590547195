// Draws fit the distributions that numpy makes of the same logits (tools/make_sampling_cases.py), by a chi-square test.
#include <algorithm>

#include "base/file.h"
#include "base/json.h"
#include "ops/sample.h"
#include "ops/test_device.h"

namespace quern {
namespace {

constexpr int32_t draws = 4000;

struct SamplingCase {
  std::string name;
  SampleRow row;  // its lists are those below
  std::vector<TokenCount> counts;
  std::vector<std::pair<int32_t, float>> biases;
  std::vector<int32_t> banned;
  std::vector<uint32_t> allowed;
  std::vector<double> probabilities;
};

std::vector<double> numbers(const Json* array) {
  std::vector<double> values;
  if (array == nullptr) return values;
  for (const Json& item : array->items()) values.push_back(item.as_number());
  return values;
}

std::vector<std::pair<int32_t, double>> pairs(const Json* array) {
  std::vector<std::pair<int32_t, double>> values;
  if (array == nullptr) return values;
  for (const Json& item : array->items()) {
    values.emplace_back(static_cast<int32_t>(item.items()[0].as_number()), item.items()[1].as_number());
  }
  return values;
}

SamplingCase read_case(const Json& json) {
  SamplingCase made;
  made.name = json.string("name").value();
  const auto number = [&](const char* key, float fallback) {
    return static_cast<float>(json.number(key).value_or(static_cast<double>(fallback)));
  };
  SampleRow& row = made.row;
  row.temperature = number("temperature", 1);
  row.min_p = number("min_p", 0);
  row.top_k = static_cast<int32_t>(json.integer("top_k").value_or(0));
  row.typical_p = number("typical_p", 1);
  row.top_p = number("top_p", 1);
  row.repetition_penalty = number("repetition_penalty", 1);
  row.frequency_penalty = number("frequency_penalty", 0);
  row.presence_penalty = number("presence_penalty", 0);
  made.probabilities = numbers(json.find("probabilities"));
  for (const auto& [token, outputs] : pairs(json.find("counts")))
    made.counts.push_back({token, static_cast<int32_t>(outputs)});
  for (const auto& [token, bias] : pairs(json.find("biases")))
    made.biases.emplace_back(token, static_cast<float>(bias));
  for (const double token : numbers(json.find("banned"))) made.banned.push_back(static_cast<int32_t>(token));
  if (json.has("allowed")) made.allowed.assign((made.probabilities.size() + 31) / 32, 0);
  for (const double token : numbers(json.find("allowed"))) {
    made.allowed[static_cast<size_t>(token) / 32] |= 1U << (static_cast<uint32_t>(token) % 32);
  }
  return made;
}

/// The logits `count` times.
TestMatrix repeated(const std::vector<double>& logits, int32_t count) {
  TestMatrix all(count, static_cast<int32_t>(logits.size()), 0);
  for (int32_t i = 0; i < count; ++i) {
    for (int32_t j = 0; j < all.cols(); ++j) all.at(i, j) = static_cast<float>(logits[static_cast<size_t>(j)]);
  }
  return all;
}

/// Of rows at positions of their own.
std::vector<Sampled> sampled(TestMatrix& all, const SamplingCase& wanted, bool processed) {
  std::vector<SampleRow> rows(static_cast<size_t>(all.tensor().dims[0]), wanted.row);
  for (size_t i = 0; i < rows.size(); ++i) {
    SampleRow& row = rows[i];
    row.seed = 20261130;
    row.position = static_cast<int64_t>(i);
    row.processed = processed;
    row.counts = wanted.counts;
    row.biases = wanted.biases;
    row.banned = wanted.banned;
    row.allowed = wanted.allowed;
  }
  TestDevice device(2);
  Exec exec = device.exec();
  std::vector<Sampled> results(rows.size());
  sample(exec, all.tensor(), rows, results);
  return results;
}

std::vector<int> count_draws(const std::vector<double>& logits, const SamplingCase& wanted) {
  TestMatrix all = repeated(logits, draws);
  const std::vector<Sampled> results = sampled(all, wanted, false);
  std::vector<int> counts(logits.size());
  for (const Sampled& result : results) {
    EXPECT_EQ(result.status, SampleStatus::ok);
    if (result.token >= 0) ++counts[static_cast<size_t>(result.token)];
  }
  return counts;
}

/// Tokens of which fewer than five are expected count as one.
void expect_fits(const std::vector<int>& counts, const std::vector<double>& probabilities) {
  double statistic = 0;
  int cells = 0;
  double rest_expected = 0;
  double rest_count = 0;
  const auto add = [&](double count, double mean) {
    statistic += (count - mean) * (count - mean) / mean;
    ++cells;
  };
  for (size_t i = 0; i < counts.size(); ++i) {
    const double mean = probabilities[i] * draws;
    if (probabilities[i] == 0) EXPECT_EQ(counts[i], 0) << "token " << i << " cannot be drawn";
    if (mean >= 5) {
      add(counts[i], mean);
    } else {
      rest_expected += mean;
      rest_count += counts[i];
    }
  }
  if (rest_expected >= 5) add(rest_count, rest_expected);
  // The mean of chi-square and four standard deviations: less than one chance in ten thousand.
  const double freedom = std::max(1, cells - 1);
  EXPECT_LT(statistic, freedom + 4 * std::sqrt(2 * freedom)) << cells << " cells";
}

/// Calls body(logits, wanted) at every level and on every device.
template <typename Body>
void for_each_case(Body&& body) {
  const auto text = read_file(std::string(QUERN_SOURCE_DIR) + "/src/ops/testdata/sampling_cases.json");
  ASSERT_TRUE(text.ok());
  const auto json = Json::parse(*text);
  ASSERT_TRUE(json.ok());
  const std::vector<double> logits = numbers(json->find("logits"));
  ASSERT_GE(json->find("cases")->items().size(), 18U);
  for (const Json& item : json->find("cases")->items()) {
    const SamplingCase wanted = read_case(item);
    SCOPED_TRACE(wanted.name);
    at_every_isa([&] { body(logits, wanted); });
  }
}

TEST(SampleReference, DrawsFitNumpysDistributions) {
  for_each_case([](const std::vector<double>& logits, const SamplingCase& wanted) {
    expect_fits(count_draws(logits, wanted), wanted.probabilities);
  });
}

TEST(SampleReference, ProcessedLogitsAreThoseOfNumpysDistributions) {
  for_each_case([](const std::vector<double>& logits, const SamplingCase& wanted) {
    TestMatrix row = repeated(logits, 1);
    const std::vector<Sampled> results = sampled(row, wanted, true);

    double total = 0;
    for (int32_t i = 0; i < row.cols(); ++i) total += std::exp(row.get(0, i));
    for (int32_t i = 0; i < row.cols(); ++i) {
      const double expected = wanted.probabilities[static_cast<size_t>(i)];
      EXPECT_NEAR(std::exp(row.get(0, i)) / total, expected, 1e-6 + 1e-4 * expected) << i;
      EXPECT_EQ(std::isfinite(row.get(0, i)), expected > 0) << i;
    }
    EXPECT_TRUE(std::isfinite(row.get(0, results[0].token)));
  });
}

TEST(Sample, ProcessedLogitsAreDividedByTheTemperatureAndCut) {
  const std::vector<double> logits = {1, 4, 2, 3, -2};
  SamplingCase wanted;
  wanted.biases = {{0, 4.5F}};
  wanted.banned = {1};
  const auto processed = [&](float temperature, int32_t top_k) {
    wanted.row.temperature = temperature;
    wanted.row.top_k = top_k;
    TestMatrix row = repeated(logits, 1);
    sampled(row, wanted, true);
    std::vector<double> values;
    for (int32_t i = 0; i < row.cols(); ++i) values.push_back(row.get(0, i));
    return values;
  };
  constexpr double none = -std::numeric_limits<double>::infinity();
  at_every_isa([&] {
    EXPECT_EQ(processed(2, 0), (std::vector<double>{2.75, none, 1, 1.5, -1}));
    EXPECT_EQ(processed(0.5, 2), (std::vector<double>{11, none, none, 6, none}));
    EXPECT_EQ(processed(0, 2), (std::vector<double>{5.5, none, 2, 3, -2}));
    TestMatrix rows = repeated(logits, 2);
    sampled(rows, wanted, false);
    for (int32_t i = 0; i < rows.cols(); ++i) EXPECT_EQ(rows.get(1, i), logits[static_cast<size_t>(i)]);
  });
}

TEST(Sample, RanksForcedTokens) {
  at_every_isa([] {
    TestMatrix logits = TestMatrix::random(1, 1301, 4, 2.0F);
    for (const int32_t forced : {0, 700, 1300}) {
      const std::vector<SampleRow> rows{{.forced = forced, .logprobs = 1}};
      std::vector<Sampled> results(1);
      TestDevice device;
      Exec exec = device.exec();
      sample(exec, logits.tensor(), rows, results);

      int32_t larger = 0;
      for (int32_t i = 0; i < 1301; ++i) larger += logits.get(0, i) > logits.get(0, forced) ? 1 : 0;
      EXPECT_EQ(results[0].rank, larger + 1);
    }
  });
}

TEST(Sample, KeepsTokensThatAreEquallyTypical) {
  at_every_isa([] {
    TestMatrix logits(1, 8, 0);
    for (int32_t i = 0; i < 8; ++i) logits.at(0, i) = 1.5F;
    std::vector<int> seen(8);
    for (int64_t position = 0; position < 300; ++position) {
      const std::vector<SampleRow> rows{{.typical_p = 0.1F, .seed = 3, .position = position}};
      std::vector<Sampled> results(1);
      TestDevice device(1);
      Exec exec = device.exec();
      sample(exec, logits.tensor(), rows, results);
      ++seen[static_cast<size_t>(results[0].token)];
    }
    for (const int count : seen) EXPECT_GT(count, 0);
  });
}

}  // namespace
}  // namespace quern
