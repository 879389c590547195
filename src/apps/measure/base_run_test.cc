#include "apps/measure/base_run.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <random>

#include "base/testing.h"

namespace quern {
namespace {

constexpr int32_t vocab = 500;
const std::vector<int32_t> tokens{4, 8, 15, 16, 23, 42};

class BaseRunTest : public ::testing::Test {
 protected:
  static std::vector<float> random_logits(uint32_t seed, float spread) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, spread);
    std::vector<float> logits(vocab);
    for (float& logit : logits) logit = normal(random);
    return logits;
  }
  void save(const std::vector<std::vector<float>>& records) {
    const BaseHead head{vocab, {6, 3}, 1, static_cast<int64_t>(records.size())};
    auto writer = BaseWriter::create(path_, head, tokens);
    ASSERT_TRUE(writer.ok());
    for (size_t i = records.size(); i-- > 0;) (*writer)->write(static_cast<int64_t>(i), records[i]);
    ASSERT_TRUE((*writer)->finish().ok());
  }
  std::string refusal() {
    const auto run = BaseRun::open(path_);
    return run.ok() ? "" : run.error().message;
  }

  testing::Folder folder_;
  std::string path_ = folder_.path() + "/base.run";
};

std::vector<double> log_softmax(const std::vector<float>& logits) {
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  std::vector<double> values;
  for (const float logit : logits) values.push_back(static_cast<double>(logit) - std::log(total));
  return values;
}

TEST_F(BaseRunTest, MeasuresDivergenceAsDoubleArithmeticDoes) {
  const std::vector<float> saved = random_logits(1, 3);
  save({random_logits(7, 2), saved});
  const auto run = BaseRun::open(path_);
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run->tokens(), tokens);
  EXPECT_EQ(run->head().sizes, (WindowSizes{6, 3}));
  for (const float noise : {0.0F, 0.02F, 0.5F, 4.0F}) {
    std::vector<float> now = random_logits(2, noise);
    for (size_t i = 0; i < now.size(); ++i) now[i] += saved[i] + 11.0F;
    const std::vector<double> p = log_softmax(saved);
    const std::vector<double> q = log_softmax(now);
    double expected = 0;
    for (size_t i = 0; i < p.size(); ++i) expected += std::exp(p[i]) * (p[i] - q[i]);

    const Difference difference = run->compare(1, now, 42, q[42]);

    EXPECT_NEAR(difference.kl, expected, 2e-6 + 1e-3 * expected) << noise;
    EXPECT_NEAR(difference.base_logprob, p[42], 4e-4);
    EXPECT_EQ(difference.same_best,
              std::ranges::max_element(saved) - saved.begin() == std::ranges::max_element(now) - now.begin());
  }
}

TEST_F(BaseRunTest, SurvivesLogitsThatAreFarApart) {
  std::vector<float> logits(vocab, -3e38F);
  logits[3] = 3e38F;
  save({logits});
  const auto run = BaseRun::open(path_);
  ASSERT_TRUE(run.ok());

  const Difference difference = run->compare(0, std::vector<float>(vocab, 0.0F), 3, -std::log(double{vocab}));

  EXPECT_NEAR(difference.kl, std::log(double{vocab}), 1e-5);
  EXPECT_NEAR(difference.base_logprob, 0, 1e-9);
}

TEST_F(BaseRunTest, RefusesWhatIsNoFinishedRun) {
  EXPECT_NE(refusal(), "");
  {
    ASSERT_TRUE(BaseWriter::create(path_, {vocab, {6, 3}, -1, 2}, tokens).ok());
  }
  EXPECT_NE(refusal().find("no finished base run"), std::string::npos) << refusal();

  save({random_logits(3, 1), random_logits(4, 1)});
  EXPECT_EQ(refusal(), "");
  const auto size = std::filesystem::file_size(path_);
  std::filesystem::resize_file(path_, size - 1);
  EXPECT_NE(refusal().find("not what its head says"), std::string::npos) << refusal();
  std::filesystem::resize_file(path_, size);
  for (const int64_t place : {20, 66}) {  // of the head, and of the tokens
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(place);
    file.put('\x7F');
    file.close();
    EXPECT_NE(refusal(), "") << place;
  }
}

TEST_F(BaseRunTest, SaysWhenItCannotBeWritten) {
  EXPECT_FALSE(BaseWriter::create("/nowhere/at/all", {vocab, {6, 3}, -1, 2}, tokens).ok());
}

}  // namespace
}  // namespace quern
