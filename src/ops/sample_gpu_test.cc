#include "ops/gpu_testing.h"
#include "ops/sample.h"

namespace quern::testing {
namespace {

using SampleGpu = OnGpu;

/// What sampling gives on the CPU or on the GPU.
std::vector<Sampled> sample_on(bool gpu, Tensor logits, const std::vector<SampleRow>& rows) {
  testing_on_gpu() = gpu;
  TestDevice device(2, int64_t{60} << 20);
  Exec exec = device.exec();
  std::vector<Sampled> results(rows.size());
  sample(exec, logits, rows, results);
  testing_on_gpu() = true;
  return results;
}

/// Lists that rows point to.
struct Lists {
  std::vector<TokenCount> counts;
  std::vector<std::pair<int32_t, float>> biases;
  std::vector<int32_t> banned;
  std::vector<uint32_t> allowed;
};

Lists some_lists(int32_t vocab) {
  Lists lists;
  for (int32_t i = 0; i < vocab; i += 7) lists.counts.push_back({i, i % 3});
  lists.biases = {{5, 9.0F}, {6, -3.0F}, {5, 1.5F}, {vocab - 1, 8.5F}, {vocab, 100.0F}};
  lists.banned = {1, 2, vocab - 2, vocab + 5, -1};
  for (int32_t word = 0; word < (vocab + 31) / 32; ++word)
    lists.allowed.push_back(0xA5A5F00FU * (2U * static_cast<uint32_t>(word) + 1U));
  return lists;
}

/// Rows of every kind.
std::vector<SampleRow> some_rows(size_t count, const Lists& lists) {
  std::vector<SampleRow> rows(count);
  for (size_t i = 0; i < count; ++i) {
    SampleRow& row = rows[i];
    row.seed = i * 0x9E3779B97F4A7C15U;
    row.position = static_cast<int64_t>(i % 50);
    row.temperature = i % 5 == 0 ? 0.0F : 0.3F + 0.2F * static_cast<float>(i % 7);
    if (i % 3 == 1) row.top_k = static_cast<int32_t>(1 + i % 400);
    if (i % 4 == 1) row.top_p = 0.05F + 0.13F * static_cast<float>(i % 8);
    if (i % 6 == 1) row.min_p = 0.02F;
    if (i % 12 == 8) row.typical_p = 0.1F + 0.1F * static_cast<float>(i % 9);
    if (i % 36 == 1) row.typical_p = 0.7F;
    if (i % 8 == 3) row.counts = lists.counts;
    if (i % 8 == 3) row.repetition_penalty = 1.3F;
    if (i % 16 == 3) row.presence_penalty = 0.4F;
    if (i % 9 == 4) row.biases = lists.biases;
    if (i % 10 == 7) row.banned = lists.banned;
    if (i % 11 == 5) row.allowed = lists.allowed;
    if (i % 13 == 6) row.forced = static_cast<int32_t>(i % 100);
    if (i % 7 == 2) row.logprobs = static_cast<int32_t>(i % 21);
  }
  return rows;
}

void expect_equal_logprobs(const Sampled& a, const Sampled& b) {
  EXPECT_NEAR(a.logprob, b.logprob, 3e-6);
  EXPECT_EQ(a.rank, b.rank);
  ASSERT_EQ(a.top_count, b.top_count);
  for (size_t i = 0; i < static_cast<size_t>(a.top_count); ++i) {
    EXPECT_EQ(a.top[i].token, b.top[i].token) << i;
    EXPECT_NEAR(a.top[i].logprob, b.top[i].logprob, 3e-6);
  }
}

/// The CPU's results, but where rounding decides: of many draws hardly one.
void expect_results_of_the_cpu(Tensor logits, const std::vector<SampleRow>& rows) {
  const std::vector<Sampled> cpu = sample_on(false, logits, rows);
  const std::vector<Sampled> gpu = sample_on(true, logits, rows);
  int different = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE("row " + std::to_string(i));
    ASSERT_EQ(gpu[i].status, cpu[i].status);
    if (gpu[i].token != cpu[i].token) {
      EXPECT_GE(rows[i].temperature, 1e-5F);
      ++different;
    } else if (rows[i].logprobs >= 0) {
      expect_equal_logprobs(gpu[i], cpu[i]);
    }
  }
  EXPECT_LE(different, static_cast<int>(rows.size() / 250));
}

TEST_F(SampleGpu, GivesTheTokensOfTheCpuForAThousandDifferentRows) {
  for (const int32_t padding : {4, 3}) {
    FloatMatrix logits = FloatMatrix::random(Dtype::f32, 1000, 5000, padding, 1, 3.0F);
    const Lists lists = some_lists(5000);
    expect_results_of_the_cpu(logits.tensor(), some_rows(1000, lists));
  }
}

TEST_F(SampleGpu, GivesTheTokensOfTheCpuForLargeVocabularies) {
  for (const int32_t vocab : {128256, 151936, 262208}) {
    FloatMatrix logits = FloatMatrix::random(Dtype::f32, 40, vocab, 0, 2, 2.5F);
    const Lists lists = some_lists(vocab);
    expect_results_of_the_cpu(logits.tensor(), some_rows(40, lists));
  }
}

/// Rounding may decide about the last token that is kept.
TEST_F(SampleGpu, ProcessesLogitsAsTheCpuDoes) {
  constexpr int32_t vocab = 5000;
  constexpr size_t count = 400;
  for (const int32_t padding : {4, 3}) {
    FloatMatrix on_cpu = FloatMatrix::random(Dtype::f32, count, vocab, padding, 1, 3.0F);
    FloatMatrix on_gpu = on_cpu;
    const Lists lists = some_lists(vocab);
    std::vector<SampleRow> rows = some_rows(count, lists);
    for (SampleRow& row : rows) row.processed = row.logprobs < 0 && row.forced < 0;

    sample_on(false, on_cpu.tensor(), rows);
    sample_on(true, on_gpu.tensor(), rows);

    int different = 0;
    for (int32_t row = 0; row < static_cast<int32_t>(count); ++row) {
      for (int32_t i = 0; i < vocab; ++i) {
        const double cpu = on_cpu.get(row, i);
        const double gpu = on_gpu.get(row, i);
        if (std::isfinite(cpu) != std::isfinite(gpu)) {
          ++different;
        } else if (std::isfinite(cpu)) {
          ASSERT_NEAR(gpu, cpu, 1e-6 + 1e-6 * std::abs(cpu)) << "row " << row << ", token " << i;
        }
      }
    }
    EXPECT_LE(different, static_cast<int>(count / 20));
  }
}

/// Too many candidates for a list: thresholds are found in the whole row.
TEST_F(SampleGpu, CutsFlatDistributionsAsTheCpuDoes) {
  constexpr int32_t vocab = 50000;
  FloatMatrix logits = FloatMatrix::random(Dtype::f32, 60, vocab, 0, 3, 0.2F);
  std::vector<SampleRow> rows(60);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].seed = i;
    rows[i].top_k = i % 2 == 0 ? 9000 : 0;
    rows[i].top_p = i % 3 == 0 ? 0.9F : 1.0F;
    rows[i].min_p = i % 5 == 0 ? 0.3F : 0.0F;
    rows[i].logprobs = 20;
  }
  const std::vector<Sampled> cpu = sample_on(false, logits.tensor(), rows);
  const std::vector<Sampled> gpu = sample_on(true, logits.tensor(), rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    // Thousands of tokens of nearly equal weight: rounding may choose a near neighbour.
    EXPECT_NEAR(gpu[i].token, cpu[i].token, 20) << "row " << i;
    for (size_t k = 0; k < 20; ++k) EXPECT_EQ(gpu[i].top[k].token, cpu[i].top[k].token);
  }
}

TEST_F(SampleGpu, TakesTheLowestOfThousandsOfEqualTokens) {
  constexpr int32_t vocab = 30000;
  FloatMatrix logits(Dtype::f32, 4, vocab, 0);
  for (int32_t row = 0; row < 4; ++row) {
    for (int32_t i = 0; i < vocab; ++i) logits.set(row, i, i < 7 ? -1.0F : 0.5F);
  }
  std::vector<SampleRow> rows(4);
  rows[0] = {.temperature = 0.0F, .logprobs = 20};
  rows[1] = {.top_k = 1};
  rows[2] = {.top_k = 10, .seed = 5, .logprobs = 20};
  rows[3] = {.top_p = 0.01F, .seed = 6};

  const std::vector<Sampled> results = sample_on(true, logits.tensor(), rows);

  EXPECT_EQ(results[0].token, 7);
  EXPECT_EQ(results[1].token, 7);
  EXPECT_GE(results[2].token, 7);
  EXPECT_LT(results[2].token, 17);
  EXPECT_GE(results[3].token, 7);
  EXPECT_LT(results[3].token, 7 + 301);
  for (const size_t row : {size_t{0}, size_t{2}}) {
    for (int32_t k = 0; k < 20; ++k) EXPECT_EQ(results[row].top[static_cast<size_t>(k)].token, 7 + k);
  }
}

TEST_F(SampleGpu, SaysWhichOfManyRowsAreNotFinite) {
  constexpr int32_t rows = 300;
  constexpr int32_t vocab = 20000;
  FloatMatrix logits = FloatMatrix::random(Dtype::f32, rows, vocab, 4, 4, 2.0F);
  const float poisons[] = {std::nanf(""), INFINITY, -INFINITY};
  for (int32_t row = 0; row < rows; row += 3) logits.set(row, (row * 977) % vocab, poisons[row / 3 % 3]);
  std::vector<SampleRow> wanted(rows);
  for (size_t i = 0; i < wanted.size(); ++i) {
    wanted[i].temperature = i % 2 == 0 ? 0.0F : 1.0F;
    wanted[i].logprobs = 3;
  }

  const std::vector<Sampled> results = sample_on(true, logits.tensor(), wanted);

  for (int32_t row = 0; row < rows; ++row) {
    const Sampled& result = results[static_cast<size_t>(row)];
    EXPECT_EQ(result.status, row % 3 == 0 ? SampleStatus::not_finite : SampleStatus::ok) << row;
    EXPECT_EQ(result.token < 0, row % 3 == 0) << row;
  }
}

}  // namespace
}  // namespace quern::testing
