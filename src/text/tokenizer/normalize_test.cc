#include "text/tokenizer/normalize.h"

#include <gtest/gtest.h>

#include "text/tokenizer/pretokenize.h"

namespace quern {
namespace {

std::string normalized(const std::string& json, std::string text) {
  const auto parsed = Json::parse(json);
  const auto normalizer = Normalizer::from_json(&*parsed);
  EXPECT_TRUE(normalizer.ok()) << json;
  EXPECT_TRUE(normalizer->apply(text).ok());
  return text;
}

std::vector<std::string> cut(const std::string& json, const std::string& text) {
  const auto parsed = Json::parse(json);
  const auto pre_tokenizer = PreTokenizer::from_json(&*parsed);
  EXPECT_TRUE(pre_tokenizer.ok()) << json;
  Pieces pieces;
  pieces.text = text;
  pieces.spans = {{0, static_cast<uint32_t>(text.size())}};
  EXPECT_TRUE(pre_tokenizer->apply(pieces).ok());
  std::vector<std::string> parts;
  for (const Span span : pieces.spans) parts.emplace_back(part(pieces.text, span));
  return parts;
}

using Parts = std::vector<std::string>;

TEST(Normalizer, KnowsTheUnicodeForms) {
  EXPECT_EQ(normalized(R"({"type":"NFC"})", "e\u0301 \u212B \u1100\u1161"), "\u00E9 \u00C5 \uAC00");
  EXPECT_EQ(normalized(R"({"type":"NFD"})", "\u00E9\uAC01"), "e\u0301\u1100\u1161\u11A8");
  EXPECT_EQ(normalized(R"({"type":"NFKC"})", "\uFB01\u2460\uFF21"), "fi1A");
  EXPECT_EQ(normalized(R"({"type":"NFKD"})", "\u00BD\u00E9"), "1\u20442e\u0301");
  EXPECT_EQ(normalized(R"({"type":"NFD"})", "a\u0301\u0323\u0302"), "a\u0323\u0301\u0302");
}

TEST(Normalizer, OrdersLongRunsOfMarksQuickly) {
  std::string text = "a";
  std::string low;
  std::string high;
  for (int i = 0; i < 100'000; ++i) {
    text += "\u0301\u0323";
    low += "\u0323";
    high += "\u0301";
  }

  EXPECT_EQ(normalized(R"({"type":"NFD"})", text), "a" + low + high);
}

TEST(Normalizer, AppliesTheSimpleOnes) {
  EXPECT_EQ(normalized(R"({"type":"Lowercase"})", "ÀB\u0130"), "àbi\u0307");
  EXPECT_EQ(normalized(R"({"type":"Strip","strip_left":true,"strip_right":true})", " \u3000a b\n"), "a b");
  EXPECT_EQ(normalized(R"({"type":"Strip","strip_left":false,"strip_right":true})", " a "), " a");
  EXPECT_EQ(normalized(R"({"type":"Strip","strip_left":true,"strip_right":true})", " \n"), "");
  EXPECT_EQ(normalized(R"({"type":"Prepend","prepend":"x"})", "a"), "xa");
  EXPECT_EQ(normalized(R"({"type":"Prepend","prepend":"x"})", ""), "");
  EXPECT_EQ(normalized(R"({"type":"Replace","pattern":{"Regex":" {2,}"},"content":"_"})", "a   b c  "), "a_b c_");
  EXPECT_EQ(normalized(R"({"type":"Replace","pattern":{"String":""},"content":"_"})", "ab"), "ab");
  EXPECT_EQ(normalized(R"({"type":"Sequence","normalizers":[{"type":"NFD"},{"type":"StripAccents"}]})", "éa"), "ea");
  EXPECT_EQ(normalized("null", "A"), "A");
}

TEST(PreTokenizer, KnowsEveryBehaviour) {
  const auto behaves = [](const std::string& behavior, const std::string& invert = "false") {
    return cut(R"({"type":"Split","pattern":{"String":"-"},"behavior":")" + behavior + R"(","invert":)" + invert + "}",
               "The-final--countdown");
  };

  EXPECT_EQ(behaves("Removed"), (Parts{"The", "final", "countdown"}));
  EXPECT_EQ(behaves("Isolated"), (Parts{"The", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(behaves("MergedWithPrevious"), (Parts{"The-", "final-", "-", "countdown"}));
  EXPECT_EQ(behaves("MergedWithNext"), (Parts{"The", "-final", "-", "-countdown"}));
  EXPECT_EQ(behaves("Contiguous"), (Parts{"The", "-", "final", "--", "countdown"}));
  EXPECT_EQ(behaves("Removed", "true"), (Parts{"-", "-", "-"}));
}

TEST(PreTokenizer, AppliesTheSimpleOnes) {
  EXPECT_EQ(cut(R"({"type":"Digits","individual_digits":true})", "a12½"), (Parts{"a", "1", "2", "½"}));
  EXPECT_EQ(cut(R"({"type":"Digits"})", "a12b"), (Parts{"a", "12", "b"}));
  EXPECT_EQ(cut(R"({"type":"Whitespace"})", "it's  a_b!?"), (Parts{"it", "'", "s", "a_b", "!?"}));
  EXPECT_EQ(cut(R"({"type":"WhitespaceSplit"})", " a\u3000b! "), (Parts{"a", "b!"}));
  EXPECT_EQ(cut(R"({"type":"BertPreTokenizer"})", "a b,c"), (Parts{"a", "b", ",", "c"}));
  EXPECT_EQ(cut(R"({"type":"Punctuation"})", "a!!b"), (Parts{"a", "!", "!", "b"}));
  EXPECT_EQ(cut(R"({"type":"CharDelimiterSplit","delimiter":"|"})", "a||b"), (Parts{"a", "b"}));
  EXPECT_EQ(cut(R"({"type":"FixedLength","length":2})", "aéxyz"), (Parts{"aé", "xy", "z"}));
  EXPECT_EQ(cut(R"({"type":"Metaspace","prepend_scheme":"always"})", "a b"), (Parts{"\u2581a", "\u2581b"}));
  EXPECT_EQ(cut(R"({"type":"Metaspace","add_prefix_space":false})", "a b"), (Parts{"a", "\u2581b"}));
  EXPECT_EQ(cut(R"({"type":"Metaspace","split":false})", " a b"), (Parts{"\u2581a\u2581b"}));
  EXPECT_EQ(cut(R"({"type":"ByteLevel"})", "a b's"), (Parts{" a", " b", "'s"}));
}

}  // namespace
}  // namespace quern
