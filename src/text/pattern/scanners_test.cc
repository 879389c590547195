#include "text/pattern/scanners.h"

#include <chrono>
#include <gtest/gtest.h>
#include <random>

#include "text/pattern/pattern.h"
#include "text/pattern/unicode.h"

namespace quern {
namespace {

/// Texts of characters that patterns treat unlike each other, in long and short runs.
std::string random_text(std::mt19937& random) {
  static constexpr char32_t awkward[] = {
      U'a',    U'Z',    U's',   U't',   U'r',   U'e',    U'v',    U'm',    U'l',    U'd',   U'S',
      U'L',    U'\'',   U'\'',  U'\'',  U' ',   U' ',    U' ',    U'\n',   U'\r',   U'\t',  U'\v',
      U'\0',   U'0',    U'7',   U'.',   U'-',   U'_',    U'$',    0x17F,   0x212A,  0xA0,   0x85,
      0x180E,  0x200B,  0x2028, 0x3000, 0xBD,   0xB2,    0x660,   0x2164,  0x4E00,  0x3042, 0xAC00,
      0x301,   0x903,   0x20DD, 0xAD,   0xFEFF, 0xFFFD,  0x1F600, 0x1F1E9, 0x200D,  0xE000, 0x10FFFF,
      0x1D7D8, 0x10400, 0x2C0,  0x1C5,  0x387,  0x31350, 0x11F00, 0x1D2C0, 0x1E4D0, 0xFF07, 0x2019};
  std::string text;
  const size_t length = random() % 60;
  for (size_t i = 0; i < length; ++i) {
    char32_t code = awkward[random() % std::size(awkward)];
    if (random() % 8 == 0) code = static_cast<char32_t>(random() % 0x110000);
    if (code >= 0xD800 && code < 0xE000) continue;
    const size_t repeats = random() % 6 == 0 ? random() % 7 : 1;
    for (size_t n = 0; n < repeats; ++n) append_utf8(text, code);
  }
  return text;
}

TEST(Scanners, CutLikeTheRegularExpression) {
  std::mt19937 random(3);
  for (const std::string_view pattern :
       {gpt2_pattern, llama3_pattern, qwen2_pattern, qwen35_pattern, o200k_pattern, tekken_pattern,
        grouped_digits_pattern, grouped_numbers_pattern, digit_groups_pattern}) {
    const Scanner scan = scanner_for(pattern);
    const auto regex = Regex::compile(pattern);
    ASSERT_TRUE(scan != nullptr && regex.ok());
    for (int round = 0; round < 20'000; ++round) {
      const std::string text = random_text(random);
      std::vector<Span> by_hand;
      std::vector<Span> by_regex;
      scan(text, by_hand);
      ASSERT_TRUE(regex->find_all(text, by_regex).ok());
      ASSERT_EQ(by_hand, by_regex) << pattern << " on " << testing::PrintToString(text);
    }
  }
  EXPECT_EQ(scanner_for(R"(\s+)"), nullptr);
}

TEST(Scanners, ClassifyEveryCharacterLikeTheRegularExpression) {
  std::string all;
  std::vector<CharClass> by_hand;
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    append_utf8(all, code);
  }
  const std::pair<const char*, CharClass> kinds[] = {
      {R"(\p{L})", CharClass::letter}, {R"([\p{N}])", CharClass::number}, {R"(\s)", CharClass::space}};
  for (const auto& [pattern, kind] : kinds) {
    const auto regex = Regex::compile(pattern);
    ASSERT_TRUE(regex.ok());
    std::vector<Span> expected;
    ASSERT_TRUE(regex->find_all(all, expected).ok());
    std::vector<Span> found;
    for (uint32_t at = 0; at < all.size();) {
      const Character character = decode_utf8(all.data() + at);
      if (char_class(character.code) == kind) found.push_back({at, at + character.length});
      at += character.length;
    }
    EXPECT_TRUE(found == expected) << pattern << ": " << found.size() << " against " << expected.size();
  }
}

TEST(Regex, ReadsOnigurumasSyntax) {
  const auto matches = [](std::string_view pattern, std::string_view text) {
    const auto regex = Regex::compile(pattern);
    EXPECT_TRUE(regex.ok()) << pattern << (regex.ok() ? "" : regex.error().message);
    std::vector<Span> spans;
    if (regex.ok()) EXPECT_TRUE(regex->find_all(text, spans).ok());
    std::vector<std::string> parts;
    for (const Span span : spans) parts.emplace_back(part(text, span));
    return parts;
  };
  using Parts = std::vector<std::string>;

  EXPECT_EQ(matches(R"(\s)", "a\u180E\u3000\vb"), (Parts{"\u3000", "\v"}));
  EXPECT_EQ(matches(R"([^\s]+)", "a\u180E b"), (Parts{"a\u180E", "b"}));
  EXPECT_EQ(matches(R"([\S-]+)", "a b"), (Parts{"a", "b"}));
  EXPECT_EQ(matches(R"(\w+)", "e\u0301_x-y"), (Parts{"e\u0301_x", "y"}));
  EXPECT_EQ(matches(R"(\w+)", "10\u2076 m\u00B2 \u24B6\u200D"), (Parts{"10", "m\u00B2", "\u24B6"}));
  EXPECT_EQ(matches(R"([\w]+)", "m\u00B2 \u24B6"), (Parts{"m", "\u24B6"}));
  EXPECT_EQ(matches(R"(\b\d+\b)", "1\u00B2 2\u2082 3\u24B6 4"), (Parts{"2", "4"}));
  EXPECT_EQ(matches(R"(\h+)", "xfF0g"), (Parts{"fF0"}));
  EXPECT_EQ(matches(R"(\v|[\v])", "\n\v\u2028\v"), (Parts{"\v", "\v"}));
  EXPECT_EQ(matches(R"([[:alpha:]]+)", "a\u24B6_\u00B2"), (Parts{"a\u24B6"}));
  EXPECT_EQ(matches(R"([^[:alnum:][:punct:]]+)", "a1$\u0664\u00B2 -"), (Parts{"\u00B2 "}));
  EXPECT_EQ(matches(R"((?m:.)+)", "a\nb"), (Parts{"a\nb"}));
  EXPECT_EQ(matches(R"(^.)", "a\nb"), (Parts{"a", "b"}));
  EXPECT_EQ(matches(R"(\u0061)", "bab"), (Parts{"a"}));
  EXPECT_EQ(matches(R"(x*)", "axb"), (Parts{"", "x", ""}));
  EXPECT_EQ(matches(R"(\x{61}+)", "baa"), (Parts{"aa"}));
  for (const char* pattern : {"[a&&b]", "[a[b]]", R"(a\)", R"(\G)", "a{1,2}+", "(*UTF)a", R"([\W])", "[[:^word:]]", "(",
                              "[", R"(\p{Nope})"}) {
    EXPECT_FALSE(Regex::compile(pattern).ok()) << pattern;
  }
  EXPECT_FALSE(Regex::compile(std::string(100'000, 'a')).ok());
}

// S14: no pattern of a file takes longer than its text deserves, neither one that is slow at each place nor at one.
TEST(Regex, S14IsBoundedInTime) {
  const auto quadratic = Regex::compile(R"([ab]*c(?=d)|[ab]*e(?=d))");
  ASSERT_TRUE(quadratic.ok());
  std::vector<Span> matches;

  EXPECT_FALSE(quadratic->find_all(std::string(1 << 22, 'a') + "ce", matches).ok());
}

TEST(Regex, S14StaysBoundedWhereEveryPlaceIsNearlyTooMuch) {
  std::vector<Span> matches;
  const auto begin = std::chrono::steady_clock::now();
  for (const size_t length : std::vector<size_t>{20, 24, 100}) {
    std::string text;
    while (text.size() < 100'000) text += std::string(length, 'a') + "!";
    const auto nested = Regex::compile(R"((?:a|a)+[bc])");
    ASSERT_TRUE(nested.ok());

    static_cast<void>(nested->find_all(text, matches));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));  // 2 s and one window each
}

}  // namespace
}  // namespace quern
