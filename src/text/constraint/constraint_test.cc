// Constraints over a vocabulary of bytes: random answers that the masks allow are what was asked for.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/constraint.h"

#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pcre2.h>
#include <random>
#include <set>

#include "server/scripted_service.h"
#include "text/constraint/budget.h"
#include "text/constraint/tags.h"

namespace quern {
namespace {

using Kind = ConstraintSpec::Kind;
using ::testing::HasSubstr;

constexpr int32_t kVocab = 272;  // wider than the tokenizer, as logits are

std::vector<int32_t> allowed(ConstraintMatcher& matcher) {
  std::vector<uint32_t> words;
  EXPECT_TRUE(matcher.fill(words));
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < kVocab; ++id) {
    if ((words[static_cast<size_t>(id) / 32] >> (id % 32) & 1U) != 0) ids.push_back(id);
  }
  return ids;
}

class ConstraintTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Constraint> compile(ConstraintSpec spec) {
    auto compiled = compiler_.compile(spec);
    EXPECT_TRUE(compiled.ok()) << spec.text << ": " << compiled.error().message;
    return compiled.ok() ? std::move(compiled).value() : nullptr;
  }
  std::string refusal(ConstraintSpec spec) {
    const auto compiled = compiler_.compile(spec);
    EXPECT_FALSE(compiled.ok()) << spec.text;
    return compiled.ok() ? "" : compiled.error().message;
  }

  /// A random answer that prefers to close what is open; nothing when it is not done in time.
  std::optional<std::string> walk(const Constraint& constraint, int most = 400) {
    const auto matcher = constraint.start();
    std::string text;
    for (int i = 0; i < most; ++i) {
      std::vector<int32_t> ids = allowed(*matcher);
      if (ids.empty()) {
        ADD_FAILURE() << "nothing may follow '" << text << "'";
        return std::nullopt;
      }
      if (random_() % 2 == 0) {
        std::vector<int32_t> closing;
        for (const int32_t id : ids) {
          if (id == ByteTokenizer::kEos || std::string_view("\"}],").find(static_cast<char>(id)) != std::string::npos)
            closing.push_back(id);
        }
        if (!closing.empty()) ids = std::move(closing);
      }
      const int32_t id = ids[random_() % ids.size()];
      EXPECT_TRUE(id < ByteTokenizer::kBos || id == ByteTokenizer::kEos) << id;
      if (id == ByteTokenizer::kEos) {
        EXPECT_TRUE(matcher->complete());
        return text;
      }
      EXPECT_TRUE(matcher->accept(id));
      text += static_cast<char>(id);
    }
    return std::nullopt;
  }

  bool accepts(const Constraint& constraint, std::string_view text) {
    const auto matcher = constraint.start();
    for (const char c : text) {
      if (!matcher->accept(static_cast<unsigned char>(c))) return false;
    }
    return matcher->complete();
  }

  std::shared_ptr<const Tokenizer> tokenizer_ = std::make_shared<ByteTokenizer>();
  ConstraintCompiler compiler_{tokenizer_, kVocab, {ByteTokenizer::kEos}};
  std::mt19937 random_{7};
};

ConstraintSpec schema(std::string text, bool strict = true) {
  return {.kind = Kind::json_schema, .text = std::move(text), .strict = strict};
}

TEST_F(ConstraintTest, AnObjectOfJsonIsAlwaysOne) {
  const auto constraint = compile({.kind = Kind::json_object});
  int whole = 0;
  for (int i = 0; i < 60; ++i) {
    const auto text = walk(*constraint);
    if (!text) continue;
    ++whole;
    const auto parsed = Json::parse(*text);
    ASSERT_TRUE(parsed.ok()) << *text;
    EXPECT_TRUE(parsed.value().is_object()) << *text;
  }
  EXPECT_GT(whole, 30);
}

TEST_F(ConstraintTest, B065StringsHaveNoRawControlCharacters) {
  for (const char* text : {R"({"type":"string"})", R"({"type":"string","maxLength":300})",
                           R"({"type":"string","minLength":2,"maxLength":9})"}) {
    const auto matcher = compile(schema(text))->start();
    ASSERT_TRUE(matcher->accept('"'));
    const std::vector<int32_t> ids = allowed(*matcher);
    for (int32_t id = 0; id < 0x20; ++id) EXPECT_EQ(std::count(ids.begin(), ids.end(), id), 0) << text << id;
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 'x'), 1);
  }
}

TEST_F(ConstraintTest, SchemasTakeWhatIsValidAndNothingElse) {
  struct Case {
    const char* schema;
    std::vector<std::string> valid;
    std::vector<std::string> invalid;
  };
  const std::vector<Case> cases = {
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["b"]})",
       {R"({"a":1,"b":"x"})", R"({ "b" : "x" })"},
       {R"({"a":1})", R"({"b":"x","a":1})", R"({"b":"x","c":1})", R"({"a":1.5,"b":"x"})"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"boolean"}})",
       {R"({})", R"({"a":1,"b":true})", R"({"ab":true})", R"({"":false})"},
       {R"({"b":1})", R"({"a":1,"a":true})", R"({"a":true})"}},
      {R"({"type":"object","additionalProperties":true,"required":["id"]})",
       {R"({"id":[1]})", R"({"id":null,"i":1,"ida":2})"},
       {R"({})", R"({"i":1})"}},
      {R"({"type":"object","patternProperties":{"^x_":{"type":"null"}}})",
       {R"({})", R"({"x_":null})"},
       {R"({"y":null})"}},
      {R"({"type":["string","null"],"minLength":2})", {"null", R"("ab")"}, {R"("a")", "1"}},
      {R"({"enum":[1,"a/b",true,null,{"k":[1]}]})", {"1", R"("a/b")", "true", "null", R"({"k":[1]})"}, {"2", "false"}},
      {R"({"const":"\u00e9\n\""})", {"\"\u00e9\\n\\\"\""}, {R"("e")"}},
      {R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":2})",
       {"[1]", "[1,-20]"},
       {"[]", "[1,2,3]"}},
      {R"({"type":"array","prefixItems":[{"type":"null"},{"type":"boolean"}],"items":false,"minItems":2})",
       {"[null,true]"},
       {"[null]", "[null,true,1]"}},
      {R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
      {R"({"type":"integer","minimum":-3,"exclusiveMaximum":12})", {"-3", "0", "11"}, {"-4", "12", "007"}},
      {R"({"type":"integer","multipleOf":7})", {"0", "49", "-7"}, {"1", "50"}},
      {R"({"type":"number","minimum":0.5,"maximum":2})", {"0.5", "2", "1.25"}, {"0.4", "2.1"}},
      {R"({"type":"string","pattern":"^([a-c]{2}|z+)$"})", {R"("ab")", R"("zzz")"}, {R"("abz")", R"("")"}},
      {R"({"type":"string","pattern":"^(ab*)?(?:[)?]c*)?d$"})", {R"("d")", R"("abb)ccd")"}, {R"("bd")", R"("cd")"}},
      {R"({"type":"string","pattern":"^\u00e4\\S$"})", {"\"\u00e4x\""}, {"\"\u00e4\"\""}},
      {R"({"allOf":[{"$ref":"#/$defs/a"},{"properties":{"y":{"type":"null"}},"required":["y"]}],
           "$defs":{"a":{"type":"object","properties":{"x":{"type":"boolean"}},"required":["x"]}}})",
       {R"({"x":true,"y":null})"},
       {R"({"x":true})"}},
      {R"({"oneOf":[{"type":"object","properties":{"t":{"const":"a"},"n":{"type":"integer"}},"required":["t","n"]},
                    {"type":"object","properties":{"t":{"const":"b"}},"required":["t"]}]})",
       {R"({"t":"a","n":1})", R"({"t":"b"})"},
       {R"({"t":"a"})", R"({"t":"b","n":1})"}},
      {R"({"$ref":"#/$defs/tree~1x","$defs":{"tree/x":{"type":"object","properties":{"v":{"type":"integer"},
           "kids":{"type":"array","items":{"$ref":"#/$defs/tree%7E1x"}}},"required":["v","kids"]}}})",
       {R"({"v":1,"kids":[{"v":2,"kids":[]}]})"},
       {R"({"v":1})"}},
      {R"({"anyOf":[{"type":"string","enum":["x"]},{"type":"null"}],"description":"d","default":null})",
       {R"("x")", "null"},
       {R"("y")"}},
  };
  for (const Case& one : cases) {
    const auto constraint = compile(schema(one.schema));
    ASSERT_NE(constraint, nullptr);
    for (const std::string& text : one.valid) EXPECT_TRUE(accepts(*constraint, text)) << one.schema << " " << text;
    for (const std::string& text : one.invalid) EXPECT_FALSE(accepts(*constraint, text)) << one.schema << " " << text;
  }
}

TEST_F(ConstraintTest, WhatCannotBeHeldIsRefusedByName) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"type":"array","uniqueItems":true})", "'uniqueItems' at '#'"},
      {R"({"properties":{"a":{"not":{"type":"null"}}}})", "'not' at '/properties/a'"},
      {R"({"type":"object","if":{}})", "'if'"},
      {R"({"type":"object","dependentRequired":{"a":["b"]}})", "'dependentRequired'"},
      {R"({"type":"array","contains":{}})", "'contains'"},
      {R"({"type":"string","minLength":3,"pattern":"^a"})", "'pattern'"},
      {R"({"type":"string","pattern":"^(?=a)b$"})", "pattern"},
      {R"({"type":"string","pattern":"^\"$"})", "pattern"},
      {R"({"type":"string","pattern":"(a"})", "pattern"},
      {R"({"type":"string","pattern":"^a$|^b$"})", "pattern"},
      {R"({"type":"number","multipleOf":0.1})", "'multipleOf'"},
      {R"({"type":"colour"})", "'type'"},
      {R"({"type":"object","properties":{"a":{"$ref":"#/$defs/b"}}})", "'#/$defs/b' leads nowhere"},
      {R"({"$ref":"https://example.org/x.json"})", "leads nowhere"},
      {R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})", "leads nowhere"},
      {R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"required":["a"]}}})",
       "never end"},
      {R"({"enum":[]})", "'enum'"},
      {R"({"type":"string","enum":[1,2]})", "no value is valid"},
      {R"({"type":"array","minItems":2,"maxItems":1})", "no value is valid"},
      {R"({"type":"integer","minimum":2,"maximum":1})", "range"},
      {R"({"type":"object","required":["a"]})", "'a' is not among the properties"},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "'oneOf'"},
      {R"({"type":"object","properties":{"a":{}},"propertyNames":{"maxLength":3}})", "'propertyNames'"},
      {R"({"type":"string","kind":"x"})", "'kind'"},
      {R"(false)", "no value is valid"},
      {R"({"type":)", "not valid JSON"},
      {R"([])", "must be an object"},
      {R"("")", "must be an object"},
  };
  for (const auto& [text, words] : cases) EXPECT_THAT(refusal(schema(text)), HasSubstr(words)) << text;
  EXPECT_NE(compile(schema(R"({"type":"string","kind":"x"})", false)), nullptr);
}

/// Whether PCRE2 finds that the whole text matches.
bool matches(const std::string& pattern, const std::string& text) {
  int error = 0;
  PCRE2_SIZE at = 0;
  const std::string whole = "^(?:" + pattern + ")$";
  pcre2_code* const code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(whole.data()), whole.size(),
                                         PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_DOTALL, &error, &at, nullptr);
  EXPECT_NE(code, nullptr) << pattern;
  pcre2_match_data* const data = pcre2_match_data_create_from_pattern(code, nullptr);
  const int found = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, data, nullptr);
  pcre2_match_data_free(data);
  pcre2_code_free(code);
  return found >= 0;
}

TEST_F(ConstraintTest, AnswersMatchTheRegularExpressionInPcre) {
  int whole = 0;
  for (const std::string pattern :
       {"[a-z]{3,8}@[a-z]+\\.(com|org)", "\\d{4}-\\d{2}-\\d{2}", "(?:ab|cd)*e?", "[^x]{2}", "a|b|", "\\w+ \\W",
        "(\\+|-)?[0-9]+(\\.[0-9]{1,3})?", "\u00e4[\u00f6\u00fc]+", ".{1,4}", "x{0,2}y{2}z{1,}", "\\.\\*\\[\\]\\\\",
        "[\\]\\-^]{3}", "(a(b(c(d)?)?)?)?", "[\\d_]{2}\\D"}) {
    const auto constraint = compile({.kind = Kind::regex, .text = pattern});
    ASSERT_NE(constraint, nullptr);
    for (int i = 0; i < 25; ++i) {
      const auto text = walk(*constraint, 60);
      if (!text) continue;
      ++whole;
      EXPECT_TRUE(matches(pattern, *text)) << pattern << " '" << *text << "'";
    }
  }
  EXPECT_GT(whole, 200);
  for (const char* pattern : {"", "(", "a{3,2}", "(?=a)b", "(a)\\1", "[z-a]", "\\p{L}"}) {
    EXPECT_NE(refusal({.kind = Kind::regex, .text = pattern}), "") << pattern;
  }
}

TEST_F(ConstraintTest, AChoiceIsOneOfThem) {
  const auto constraint = compile({.kind = Kind::choice, .choices = {"yes", "no", "no way \"\\\n", "\u00e9"}});
  std::set<std::string> seen;
  for (int i = 0; i < 60; ++i) seen.insert(walk(*constraint).value_or("?"));
  EXPECT_EQ(seen, (std::set<std::string>{"yes", "no", "no way \"\\\n", "\u00e9"}));
  EXPECT_THAT(refusal({.kind = Kind::choice}), HasSubstr("at least one"));
  EXPECT_THAT(refusal({.kind = Kind::choice, .choices = {""}}), HasSubstr("not empty"));
}

TEST_F(ConstraintTest, GrammarsComeAsEbnfAndAsLark) {
  const auto ebnf = compile(
      {.kind = Kind::grammar, .text = "# sums\nroot ::= term (\"+\" term)*\nterm ::= [0-9]{1,3} | \"(\" root \")\"\n"});
  EXPECT_TRUE(accepts(*ebnf, "1+(22+3)"));
  EXPECT_FALSE(accepts(*ebnf, "1+"));
  const auto lark = compile({.kind = Kind::grammar, .text = "start: \"SELECT \" NAME\nNAME: /[a-z]+/\n"});
  EXPECT_TRUE(accepts(*lark, "SELECT abc"));
  EXPECT_FALSE(accepts(*lark, "SELECT 1"));
  for (const char* text :
       {"", "root ::= other", "rule ::= \"a\"", "root ::= \"a", "start: missing", "root ::= (((\"a\""}) {
    EXPECT_NE(refusal({.kind = Kind::grammar, .text = text}), "") << text;
  }
}

TEST_F(ConstraintTest, ATriggerMakesATagDue) {
  const Json call = Json::parse(R"({"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]})").value();
  const auto lazy = compile({.kind = Kind::structural_tag,
                             .text = tags::document(tags::triggered(
                                 {.triggers = {"<f="}, .tags = {tags::tag("<f=a>", tags::json(call), "</f>")}}))});
  EXPECT_TRUE(accepts(*lazy, "plain\ttext"));
  EXPECT_TRUE(accepts(*lazy, "text <f=a>{\"x\":1}</f> more"));
  EXPECT_FALSE(accepts(*lazy, "text <f=b>"));
  EXPECT_FALSE(accepts(*lazy, "text <f=a>{\"y\""));
  const auto forced =
      compile({.kind = Kind::structural_tag, .text = tags::document(tags::tag("<f=a>", tags::json(call), "</f>"))});
  EXPECT_TRUE(accepts(*forced, "<f=a>{\"x\":1}</f>"));
  EXPECT_FALSE(accepts(*forced, "text"));
  const auto old =
      compile({.kind = Kind::structural_tag,
               .text = R"({"structures":[{"begin":"<f>","schema":{"type":"null"},"end":"</f>"}],"triggers":["<f>"]})"});
  EXPECT_TRUE(accepts(*old, "so <f>null</f>"));
  EXPECT_FALSE(accepts(*old, "so <f>true</f>"));
  EXPECT_THAT(
      refusal({.kind = Kind::structural_tag, .text = tags::document(tags::json(Json::parse(R"({"not":{}})").value()))}),
      HasSubstr("'not'"));
}

TEST_F(ConstraintTest, ControlTokensFollowOnlyWhereTheirIdIsAsked) {
  const auto free = compile({.kind = Kind::structural_tag, .text = tags::document(tags::any_text())})->start();
  const std::vector<int32_t> ids = allowed(*free);
  for (const int32_t id : {ByteTokenizer::kBos, ByteTokenizer::kSpecial, 259, 271}) {
    EXPECT_EQ(std::count(ids.begin(), ids.end(), id), 0) << id;
  }
  EXPECT_EQ(std::count(ids.begin(), ids.end(), ByteTokenizer::kEos), 1);
  const auto asked = compile({.kind = Kind::structural_tag,
                              .text = tags::document(tags::tag(ByteTokenizer::kSpecial, tags::literal("a"), "b"))});
  const auto matcher = asked->start();
  EXPECT_EQ(allowed(*matcher), std::vector<int32_t>{ByteTokenizer::kSpecial});
  EXPECT_TRUE(matcher->accept(ByteTokenizer::kSpecial) && matcher->accept('a') && matcher->accept('b'));
  EXPECT_EQ(allowed(*matcher), std::vector<int32_t>{ByteTokenizer::kEos});
  EXPECT_THAT(refusal({.kind = Kind::structural_tag, .text = tags::document(tags::tag(5000, tags::any_text(), "b"))}),
              HasSubstr("5000 is no token"));
}

TEST_F(ConstraintTest, TokensCanBeTakenBack) {
  const auto constraint = compile(schema(R"({"enum":["ab","ac"]})"));
  const auto matcher = constraint->start();
  for (const char c : {'"', 'a', 'b'}) ASSERT_TRUE(matcher->accept(c));
  EXPECT_FALSE(matcher->accept('x'));
  matcher->rollback(1);
  EXPECT_EQ(allowed(*matcher), (std::vector<int32_t>{'b', 'c'}));
  ASSERT_TRUE(matcher->accept('c') && matcher->accept('"'));
  EXPECT_TRUE(matcher->complete());
  EXPECT_TRUE(matcher->accept(ByteTokenizer::kEos));
  matcher->rollback(5);
  EXPECT_EQ(allowed(*matcher), std::vector<int32_t>{'"'});
}

TEST_F(ConstraintTest, WhatWasCompiledIsKeptAsLongAsThereIsRoom) {
  const ConstraintSpec first = schema(R"({"type":"boolean"})");
  EXPECT_FALSE(compiler_.cached(first).has_value());
  const auto made = compile(first);
  EXPECT_EQ(compiler_.cached(first)->value(), made);
  EXPECT_EQ(compile(first), made);
  refusal(schema("{"));
  EXPECT_TRUE(compiler_.cached(schema("{")).has_value());
  ConstraintCompiler small(tokenizer_, kVocab, {ByteTokenizer::kEos}, {.cache_bytes = 1});
  ASSERT_TRUE(small.compile(first).ok());
  ASSERT_TRUE(small.compile(schema("true")).ok());
  EXPECT_FALSE(small.cached(first).has_value());
}

TEST_F(ConstraintTest, AModelWithoutAnEndIsNotConstrained) {
  ConstraintCompiler endless(tokenizer_, kVocab, {});
  EXPECT_FALSE(endless.compile({}).ok());
}

std::string repeated(std::string_view text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST_F(ConstraintTest, S15HostileTextCostsBoundedTime) {
  ConstraintCompiler compiler(tokenizer_, kVocab, {ByteTokenizer::kEos},
                              {.compile_bytes = int64_t{128} << 20, .compile_cpu_s = 0.5});
  std::string names;
  for (int i = 0; i < 12'000; ++i) names += fmt::format("{}\"v{}\"", i == 0 ? "" : ",", i);
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 1500; ++i) chain += fmt::format("r{} ::= r{}\n", i, i + 1);
  std::string doubling = R"({"$ref":"#/$defs/d0","$defs":{)";
  for (int i = 0; i < 40; ++i)
    doubling +=
        fmt::format(R"("d{}":{{"allOf":[{{"$ref":"#/$defs/d{}"}},{{"$ref":"#/$defs/d{}"}}]}},)", i, i + 1, i + 1);
  doubling += R"("d40":{"type":"null"}}})";
  const std::vector<ConstraintSpec> cases = {
      schema(R"({"enum":[)" + names + "]}"),
      schema(R"({"type":"array","minItems":1000000,"items":{"type":"array","minItems":1000000,"items":{}}})"),
      schema(R"({"type":"string","pattern":"^((((a{1,900}){1,900}){1,900}){1,900})$"})"),
      schema(R"({"type":"string","pattern":"^(([a-z])+.)+[A-Z]([a-z])+$"})"),
      schema(R"({"type":"string","minLength":1000000})"),
      schema(repeated(R"({"anyOf":[)", 30) + "{}" + repeated("]}", 30)),
      schema(doubling),
      {.kind = Kind::regex, .text = repeated("(a|b", 60) + repeated(")*", 60)},
      {.kind = Kind::regex, .text = repeated("(", 30'000) + repeated(")", 30'000)},
      {.kind = Kind::regex, .text = "(a+)+(a+)+(a+)+b{1,99999}"},
      {.kind = Kind::regex, .text = repeated("(a?){50}", 200)},
      {.kind = Kind::grammar, .text = chain + "r1500 ::= \"a\"\n"},
      {.kind = Kind::grammar, .text = "root ::= root root | \"a\" | \"\"\n"},
      {.kind = Kind::grammar, .text = "root ::= root\n"},
      {.kind = Kind::grammar, .text = "root ::= ((\"a\"{0,100000}){0,100000}){0,100000}\n"},
      {.kind = Kind::grammar, .text = "root ::= \"a\" root\n"},
      {.kind = Kind::structural_tag, .text = repeated(R"({"type":"sequence","elements":[)", 29) + repeated("]}", 29)},
  };
  for (const ConstraintSpec& spec : cases) {
    const auto start = std::chrono::steady_clock::now();
    const auto compiled = compiler.compile(spec);
    if (compiled.ok()) walk(*compiled.value(), 40);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(took.count(), 30) << spec.text.substr(0, 80);  // half a second of processor time, on a busy machine
    if (!compiled.ok()) EXPECT_FALSE(compiled.error().message.empty());
  }
  const auto after = compiler.compile(schema(R"({"type":"null"})"));
  ASSERT_TRUE(after.ok()) << after.error().message;
  EXPECT_TRUE(accepts(*after.value(), "null"));
}

/// Takes memory and gives it back, where a compiler may not leave both out.
void take(size_t bytes) { ::operator delete(::operator new(bytes)); }

TEST(AllocationBudget, BoundsWhatIsHeldAndTheTime) {
  {
    const AllocationBudget budget(1 << 20, 10);
    for (int i = 0; i < 100; ++i) take(1 << 19);
    EXPECT_THROW(take(1 << 21), std::bad_alloc);
    EXPECT_EQ(budget.spent(), AllocationBudget::Spent::bytes);
  }
  {
    const AllocationBudget budget(1 << 20, 0.01);
    for (int i = 0; i < 1'000'000; ++i) take(100);  // small ones are never refused
    EXPECT_THROW(while (true) { take(2000); }, std::bad_alloc);
    EXPECT_EQ(budget.spent(), AllocationBudget::Spent::time);
  }
  take(1 << 21);
}

}  // namespace
}  // namespace quern
