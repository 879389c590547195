// A tokenizer on the client's side: exact prompts, and the tokens of what came back.
#include "apps/load/tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <set>

#include "base/file.h"

namespace quern {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string file_of(const std::string& name) {
  return std::string(QUERN_SOURCE_DIR) + "/src/text/testdata/" + name + ".tokenizer.json";
}

std::shared_ptr<const Tokenizer> tokenizer_of(const std::string& name) {
  const auto text = read_file(file_of(name));
  auto made = Tokenizer::from_json(*text, Json());
  EXPECT_TRUE(made.ok());
  return *made;
}

class Kinds : public ::testing::TestWithParam<const char*> {};

TEST_P(Kinds, MakesTextsOfAnExactLength) {
  const auto tokenizer = tokenizer_of(GetParam());
  const LoadTokens tokens(tokenizer);
  std::mt19937_64 random(1);

  std::set<std::string> texts;
  for (const int length : {5, 17, 64, 500}) {
    const auto prefix = tokens.draw_text("", length, random);
    ASSERT_TRUE(prefix.ok()) << prefix.error().message;
    const auto whole = tokens.draw_text(*prefix, length + 9, random);
    ASSERT_TRUE(whole.ok()) << whole.error().message;

    EXPECT_EQ(tokenizer->encode(*prefix, {.add_special = false})->size(), static_cast<size_t>(length));
    EXPECT_EQ(tokenizer->encode(*whole, {})->size(), static_cast<size_t>(length + 9 + tokens.around()));
    EXPECT_TRUE(whole->starts_with(*prefix));
    texts.insert(*whole);
  }
  EXPECT_EQ(texts.size(), 4U);
}

TEST_P(Kinds, DrawsTokensThatStandForText) {
  const auto tokenizer = tokenizer_of(GetParam());
  const LoadTokens tokens(tokenizer);
  std::mt19937_64 random(1);

  for (int i = 0; i < 2000; ++i) {
    const int32_t id = tokens.draw_id(random);
    EXPECT_FALSE(tokenizer->is_special(id));
    EXPECT_FALSE(tokenizer->token_bytes(id).empty());
  }
}

TEST_P(Kinds, CountsTheTokensOfChunks) {
  const LoadTokens tokens(tokenizer_of(GetParam()));
  const std::string text = "the quick brown fox jumps over the lazy dog";
  const int bytes[] = {3, 0, 10, 0, static_cast<int>(text.size()) - 13};

  const std::vector<int> found = tokens.by_chunk(text, bytes);

  ASSERT_EQ(found.size(), 5U);
  EXPECT_EQ(std::accumulate(found.begin(), found.end(), 0), tokens.count(text));
  EXPECT_GT(found[0], 0);
  EXPECT_EQ(found[1], 0);
  EXPECT_GT(found[4], found[0]);
}

INSTANTIATE_TEST_SUITE_P(Cases, Kinds, ::testing::Values("llama3", "qwen2", "llama2", "gemma"));

TEST(LoadTokens, ComeFromAFileOrSayWhy) {
  EXPECT_TRUE(LoadTokens::open(file_of("qwen2")).ok());
  EXPECT_THAT(LoadTokens::open("nowhere/tokenizer.json").error().message,
              HasSubstr("nowhere: there is no tokenizer.json"));
}

}  // namespace
}  // namespace quern
