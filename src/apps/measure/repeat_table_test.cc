// llama-bench's tests and tables.
#include "apps/measure/repeat_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quern {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::string> names(const RepeatOptions& options) {
  const auto tests = parse_tests(options);
  if (!tests.ok()) return {tests.error().message};
  std::vector<std::string> made;
  for (const RepeatTest& test : *tests) made.push_back(test.name());
  return made;
}

TEST(RepeatTests, AreThoseOfLlamaBench) {
  EXPECT_THAT(names({}), ElementsAre("pp512", "tg128"));
  EXPECT_THAT(names({.prompts = {64, 128}}), ElementsAre("pp64", "pp128", "tg128"));
  EXPECT_THAT(names({.prompts = {0}, .generations = {7}}), ElementsAre("tg7"));
  EXPECT_THAT(names({.pairs = "512,128"}), ElementsAre("pp512+tg128"));
  EXPECT_THAT(names({.prompts = {9}, .pairs = "3,4"}), ElementsAre("pp9", "tg128", "pp3+tg4"));
}

TEST(RepeatTests, AreRefusedInASentence) {
  EXPECT_THAT(names({.prompts = {0}, .generations = {0}})[0], HasSubstr("nothing to measure"));
  EXPECT_THAT(names({.pairs = "3"})[0], HasSubstr("-pg 3"));
  EXPECT_THAT(names({.pairs = "3,0"})[0], HasSubstr("-pg 3,0"));
  EXPECT_THAT(names({.output = "xml"})[0], HasSubstr("--output xml"));
}

// The expected values are Python's statistics.mean and statistics.stdev.
TEST(RepeatTests, HaveTheDeviationOfASample) {
  const double values[] = {7.25, 1.5, 3.0, 12.0};
  EXPECT_NEAR(spread(values).mean, 5.9375, 1e-12);
  EXPECT_NEAR(spread(values).deviation, 4.718646522044218, 1e-12);
  EXPECT_EQ(spread(std::span(values, 1)).deviation, 0.0);
}

class RepeatTable : public ::testing::Test {
 protected:
  RepeatFacts facts_{.commit = "abc",
                     .cpu = "A \"fast\" one",
                     .backend = "CPU",
                     .file = "m.gguf",
                     .type = "llama Q4_1",
                     .kv_type = "float16",
                     .bytes = 98 << 20,
                     .parameters = 134'515'008,
                     .threads = 2,
                     .batch_tokens = 512};
  std::vector<RepeatTest> tests_ = {{512, 0, {2.0, 4.0}, "2026-01-02T03:04:05Z"}, {0, 10, {1.0}}};
};

TEST_F(RepeatTable, IsMarkdown) {
  const std::string text = table_of("", facts_, tests_);

  EXPECT_EQ(text, table_of("md", facts_, tests_));
  EXPECT_EQ(text,
            "| model                          |       size |     params | backend    | threads |            test |"
            "                  t/s |\n"
            "| ------------------------------ | ---------: | ---------: | ---------- | ------: | --------------: |"
            " -------------------: |\n"
            "| llama Q4_1                     |  98.00 MiB |   134.52 M | CPU        |       2 |           pp512 |"
            "       192.00 ± 90.51 |\n"
            "| llama Q4_1                     |  98.00 MiB |   134.52 M | CPU        |       2 |            tg10 |"
            "         10.00 ± 0.00 |\n");
}

TEST_F(RepeatTable, IsJson) {
  const Json all = *Json::parse(table_of("json", facts_, tests_));
  ASSERT_EQ(all.items().size(), 2U);
  const Json& first = all.items()[0];
  EXPECT_EQ(first.integer("n_prompt"), 512);
  EXPECT_EQ(first.integer("n_gen"), 0);
  EXPECT_EQ(first.integer("avg_ns"), 3'000'000'000);
  EXPECT_EQ(first.number("avg_ts"), 192.0);
  EXPECT_NEAR(*first.number("stddev_ts"), 90.50966799187809, 1e-9);
  EXPECT_EQ(first.find("samples_ts")->dump(), "[256.0,128.0]");
  EXPECT_EQ(first.find("samples_ns")->dump(), "[2000000000,4000000000]");
  EXPECT_EQ(first.string("test_time"), "2026-01-02T03:04:05Z");
  EXPECT_EQ(table_of("jsonl", facts_, tests_), first.dump() + "\n" + all.items()[1].dump() + "\n");
}

TEST_F(RepeatTable, IsCsv) {
  const std::string text = table_of("csv", facts_, tests_);

  EXPECT_THAT(text, StartsWith("build_commit,cpu_info,"));
  EXPECT_THAT(text, HasSubstr("\n\"abc\",\"A \"\"fast\"\" one\",\"\",\"CPU\",\"m.gguf\""));
  EXPECT_THAT(text, HasSubstr(",\"512\",\"0\",\"0\",\"2026-01-02T03:04:05Z\",\"3000000000\""));
  EXPECT_EQ(std::ranges::count(text, '\n'), 3);
}

}  // namespace
}  // namespace quern
