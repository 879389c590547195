// Cuts by the pre-tokenizers that GGUF files name, and members of classes of characters, against `tokenizers`:
// tools/make_pattern_cases.py makes the hashes of what it says.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <sstream>

#include "text/pattern/gguf_patterns.h"
#include "text/pattern/unicode.h"
#include "text/tokenizer/cases_testing.h"
#include "text/tokenizer/pretokenize.h"

namespace quern {
namespace {

const Json& pattern_cases() {
  static const Json cases = [] {
    auto json = Json::parse(tokenizer_cases::test_file("pattern_cases.json"));
    EXPECT_TRUE(json.ok());
    return json.ok() ? *json : Json();
  }();
  return cases;
}

std::string fnv1a(std::string_view text) {
  uint64_t value = 0xCBF29CE484222325;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return fmt::format("{:016x}", value);
}

Result<PreTokenizer> pre_tokenizer_of(const GgufPreTokenizer& kind) {
  Json::Array cuts;
  for (const std::string_view pattern : kind.patterns) {
    const Json regex(Json::Object{{"Regex", Json(pattern)}});
    cuts.emplace_back(Json::Object{{"type", Json("Split")}, {"pattern", regex}});
  }
  if (kind.drop_spaces) cuts.emplace_back(Json::Object{{"type", Json("WhitespaceSplit")}});
  const Json sequence(Json::Object{{"type", Json("Sequence")}, {"pretokenizers", Json(std::move(cuts))}});
  return PreTokenizer::from_json(&sequence);
}

std::string with_escaped_spaces(std::string_view text) {
  std::string escaped;
  for (const char c : text) c == ' ' ? escaped += "\u2581" : escaped += c;
  return escaped;
}

std::vector<std::string_view> cut(const PreTokenizer& pre_tokenizer, std::string_view text) {
  Pieces pieces;
  pieces.text = text;
  pieces.spans = {{0, static_cast<uint32_t>(text.size())}};
  EXPECT_TRUE(pre_tokenizer.apply(pieces).ok());
  std::vector<std::string_view> parts;
  for (const Span span : pieces.spans) parts.push_back(part(text, span));
  return parts;
}

/// The eight digits that stand for the cuts of a text.
std::string hash_of(const std::vector<std::string_view>& parts) {
  std::vector<size_t> lengths;
  for (const std::string_view piece : parts) lengths.push_back(piece.size());
  return fnv1a(fmt::format("{}", fmt::join(lengths, ","))).substr(0, 8);
}

void expect_cuts(const std::string& name, std::string_view hashes) {
  const GgufPreTokenizer* kind = find_gguf_pre_tokenizer(name);
  ASSERT_TRUE(kind != nullptr) << name;
  const auto pre_tokenizer = pre_tokenizer_of(*kind);
  ASSERT_TRUE(pre_tokenizer.ok()) << name << ": " << pre_tokenizer.error().message;
  const Json::Array& texts = pattern_cases().find("texts")->items();
  ASSERT_EQ(hashes.size(), texts.size() * 8);

  int wrong = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string& text = texts[i].as_string();
    const std::string normalized = kind->escape_spaces ? with_escaped_spaces(text) : text;
    const auto parts = cut(*pre_tokenizer, normalized);
    if (hash_of(parts) == hashes.substr(i * 8, 8)) continue;
    if (++wrong <= 3)
      ADD_FAILURE() << name << " text " << i << ": " << Json(fmt::format("{}", fmt::join(parts, "|"))).dump();
  }
  EXPECT_EQ(wrong, 0) << name << ": of " << texts.size();
}

TEST(GgufPreTokenizers, CutLikeThePatternsOfTheModelsOwnFiles) {
  const Json::Array& kinds = pattern_cases().find("pre_tokenizers")->items();
  ASSERT_FALSE(kinds.empty());
  for (const Json& kind : kinds) {
    std::istringstream names(kind.find("names")->as_string());
    for (std::string name; names >> name;) expect_cuts(name, kind.find("hashes")->as_string());
  }
}

TEST(Regex, ClassesHaveTheMembersOfOniguruma) {
  std::string all;
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code < 0xD800 || code >= 0xE000) append_utf8(all, code);
  }
  const Json& classes = *pattern_cases().find("classes");
  ASSERT_FALSE(classes.members().empty());
  for (const auto& [pattern, hash] : classes.members()) {
    const auto regex = Regex::compile(pattern);
    ASSERT_TRUE(regex.ok()) << pattern;

    std::vector<Span> found;
    ASSERT_TRUE(regex->find_all(all, found).ok());
    std::string members;
    for (const Span span : found) {
      fmt::format_to(std::back_inserter(members), "{}{:x}", members.empty() ? "" : ",",
                     static_cast<uint32_t>(decode_utf8(all.data() + span.begin).code));
    }
    EXPECT_EQ(fnv1a(members), hash.as_string()) << pattern << " has " << found.size() << " members";
  }
}

TEST(Regex, ByHandTheSameCharactersBelongToWords) {
  const auto regex = Regex::compile(R"(\w)");
  ASSERT_TRUE(regex.ok());
  int wrong = 0;
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    append_utf8(text, code);
    std::vector<Span> found;
    ASSERT_TRUE(regex->find_all(text, found).ok());
    if (found.empty() == is_regex_word(code) && ++wrong <= 10)
      ADD_FAILURE() << fmt::format("U+{:04X}", static_cast<uint32_t>(code));
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace quern
