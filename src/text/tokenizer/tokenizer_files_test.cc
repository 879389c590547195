// tekken.json, and vocab.json with merges.txt (tools/make_tokenizer_file_cases.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/tokenizer/cases_testing.h"

namespace quern {
namespace {

using testing::HasSubstr;
using tokenizer_cases::test_file;

TEST(TekkenTokenizer, AgreesWithMistralsOwn) {
  const auto tokenizer = Tokenizer::from_tekken(test_file("tekken.json"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;

  tokenizer_cases::expect_cases(**tokenizer, Json::parse(test_file("tekken.cases.json")).value());
  EXPECT_EQ((*tokenizer)->bos(), 1);
  EXPECT_EQ((*tokenizer)->eos(), 2);
  EXPECT_EQ((*tokenizer)->token_text(7), "<SPECIAL_7>");
}

/// The small file with a part of its text replaced.
std::string refused(const std::string& from, const std::string& to) {
  std::string file = test_file("tekken.json");
  const size_t at = file.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  file.replace(at, from.size(), to);
  const auto tokenizer = Tokenizer::from_tekken(file);
  return tokenizer.ok() ? "accepted" : tokenizer.error().message;
}

TEST(TekkenTokenizer, RefusesFilesThatContradictThemselves) {
  EXPECT_EQ(refused("\"version\":\"v7\"", "\"version\":\"v99\""), "accepted");
  EXPECT_THAT(refused("\"default_num_special_tokens\":10", "\"default_num_special_tokens\":-1"), HasSubstr("config"));
  EXPECT_THAT(refused("\"default_num_special_tokens\":10", "\"default_num_special_tokens\":400"), HasSubstr("config"));
  EXPECT_THAT(refused("\"default_vocab_size\":", "\"default_vocab_size\":9"), HasSubstr("\"vocab\""));
  EXPECT_THAT(refused("\"pattern\":", "\"Pattern\":"), HasSubstr("pattern"));
  EXPECT_THAT(refused("\"token_bytes\":\"AQ==\"", "\"token_bytes\":\"!\""), HasSubstr("token 1 "));
  EXPECT_THAT(refused("{\"rank\":3,", "{\"rank\":4,"), HasSubstr("token 3 "));
  EXPECT_THAT(refused("\"token_str\":\"[INST]\"", "\"token_str\":\"<s>\""), HasSubstr("twice"));
  EXPECT_THAT(refused("\"token_str\":\"[INST]\"", "\"token_str\":\"\""), HasSubstr("special_tokens"));
  EXPECT_THAT(refused("\"vocab\":[", "\"vocab\":[[],"), HasSubstr("token 0 "));
  EXPECT_NE(refused("{\"config\"", "[\"config\""), "accepted");
}

TEST(MergesTokenizer, DoesWhatItsClassDoes) {
  const std::string vocabulary = test_file("merges.vocab.json");
  const std::string merges = test_file("merges.txt");
  const Json classes = Json::parse(test_file("merges.cases.json")).value();
  ASSERT_EQ(classes.members().size(), 3U);
  for (const auto& [name, one] : classes.members()) {
    const auto tokenizer = Tokenizer::from_merges(vocabulary, merges, *one.find("config"));
    ASSERT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.error().message;
    tokenizer_cases::expect_cases(**tokenizer, *one.find("cases"));
  }
}

TEST(MergesTokenizer, RefusesClassesThatItDoesNotKnowAndBadFiles) {
  const auto refusal = [](const char* vocabulary, const char* merges, const char* config) {
    const auto tokenizer = Tokenizer::from_merges(vocabulary, merges, Json::parse(config).value());
    return tokenizer.ok() ? "accepted" : tokenizer.error().message;
  };
  const char* const letters = R"({"a":0,"b":1,"ab":2})";
  EXPECT_EQ(refusal(letters, "#version: 0.2\r\na b\r\n", "{}"), "accepted");
  EXPECT_THAT(refusal(letters, "a b", R"({"tokenizer_class":"WhisperTokenizer"})"), HasSubstr("WhisperTokenizer"));
  EXPECT_THAT(refusal("[1]", "a b", "{}"), HasSubstr("vocab.json"));
  EXPECT_NE(refusal("{", "a b", "{}"), "accepted");
  EXPECT_NE(refusal(letters, "a c", "{}"), "accepted");
  EXPECT_NE(refusal(letters, "a b", R"({"added_tokens_decoder":{"x":{"content":"c"}}})"), "accepted");
}

}  // namespace
}  // namespace quern
