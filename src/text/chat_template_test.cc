#include "text/chat_template.h"

#include <gtest/gtest.h>
#include <string>

#include "base/json.h"

namespace quern {
namespace {

Json object(std::initializer_list<std::pair<std::string, Json>> members) { return Json(Json::Object(members)); }

std::vector<TextPiece> pieces(const std::string& source, const Json& variables,
                              const std::vector<std::string>& trusted = {}) {
  const auto parsed = ChatTemplate::parse(source);
  EXPECT_TRUE(parsed.ok()) << source;
  auto result = parsed->render(variables, trusted);
  EXPECT_TRUE(result.ok()) << source << ": " << (result.ok() ? "" : result.error().message);
  return result.ok() ? *result : std::vector<TextPiece>();
}

/// Pieces as text: untrusted ones stand in «».
std::string marked(const std::string& source, const Json& variables, const std::vector<std::string>& trusted = {}) {
  std::string text;
  for (const TextPiece& piece : pieces(source, variables, trusted)) {
    text += piece.trusted ? piece.text : "«" + piece.text + "»";
  }
  return text;
}

/// The error of parsing or rendering.
std::string failure(const std::string& source, const TemplateLimits& limits = {}, const Json& variables = {}) {
  const auto parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return parsed.error().message;
  const auto result = parsed->render(variables, {}, limits);
  return result.ok() ? "" : result.error().message;
}

// S22
TEST(ChatTemplateTrust, TextOfMessagesStaysUntrusted) {
  const Json user = object({{"x", "user"}, {"bos", "<s>"}, {"d", object({{"k", "v"}})}});

  EXPECT_EQ(marked("<|{{ x }}|>", user), "<|«user»|>");
  EXPECT_EQ(marked("{{ bos }}{{ x }}", user, {"bos"}), "<s>«user»");
  EXPECT_EQ(marked("{{ bos }}{{ x }}", user), "«<s>user»");
  EXPECT_EQ(marked("{{ '<' + x + '>' }}", user), "<«user»>");
  EXPECT_EQ(marked("{{ ('<' ~ x ~ '>')[1:4] }}{{ ('<' ~ x)[::-1] }}", user), "«useresu»<");
  EXPECT_EQ(marked("{{ x|upper }}{{ (x ~ 'B')|title }}{{ x * 2 }}", user), "«USERUser»b«useruser»");
  EXPECT_EQ(marked("{{ d|tojson }}", user), "{\"«k»\": \"«v»\"}");
  EXPECT_EQ(marked("{{ [x, 'a']|join('-') }}{{ x.split('s')|join('S') }}", user), "«user»-a«u»S«er»");
  EXPECT_EQ(marked("{{ x.replace('s', '<s>') }}{{ '<s>x'.replace('x', x) }}", user), "«u»<s>«er»<s>«user»");
  EXPECT_EQ(marked("{{ '[{:>6}]'.format(x) }}{{ '%s!' % x }}", user), "[  «user»]«user»!");
  EXPECT_EQ(marked("{% macro m(a) %}<{{ a }}>{% endmacro %}{% set y %}{{ m(x) }}.{% endset %}{{ y|trim }}", user),
            "<«user»>.");
  EXPECT_EQ(marked("{% for c in x %}{{ c }}{% endfor %}", user), "«user»");
}

TEST(ChatTemplateTrust, AFormatFromOutsideCanNotMakeTrustedText) {
  const Json user = object({{"x", "{0:<>1}{0:|>1}"}, {"j", R"({"a": "<s>"})"}});

  EXPECT_EQ(marked("{{ x.format('') }}", user), "«<|»");
  EXPECT_EQ(marked("{{ (j|from_json).a }}", user), "«<s>»");
}

TEST(ChatTemplateTrust, NeighboursOfEqualTrustAreOnePiece) {
  EXPECT_EQ(pieces("a{{ 'b' }}{{ 1 }}c", {}).size(), 1u);
  EXPECT_EQ(pieces("", {}).size(), 0u);
  EXPECT_EQ(join(pieces("a{{ x }}b", object({{"x", "-"}}))), "a-b");
}

// S11
TEST(ChatTemplateLimits, EveryLimitEndsARendering) {
  TemplateLimits few;
  few.max_operations = 1000;
  EXPECT_NE(failure("{% for a in range(99) %}{% for b in range(99) %}{% endfor %}{% endfor %}", few).find("operations"),
            std::string::npos);
  TemplateLimits brief;
  brief.max_time_us = -1;
  EXPECT_NE(failure("{% for a in range(1000) %}{{ a }}{% endfor %}", brief).find("runs longer"), std::string::npos);
  TemplateLimits small;
  small.max_output_bytes = 100;
  EXPECT_NE(failure("{% for a in range(1000) %}{{ a }}{% endfor %}", small).find("text of more"), std::string::npos);
  TemplateLimits lean;
  lean.max_memory_bytes = 10'000;
  EXPECT_NE(failure("{% set x = range(1000)|list %}", lean).find("memory"), std::string::npos);
}

TEST(ChatTemplateLimits, S11HostileTemplatesEndQuicklyWithAnError) {
  const std::string bombs[] = {
      "{{ 'a' * 10**9 }}",
      "{{ [1] * 10**9 }}",
      "{{ range(10**9) }}",
      "{{ 'a'.center(10**12) }}",
      "{{ 'a'|indent(10**12) }}",
      "{{ '%999999999d' % 1 }}",
      "{{ '{:999999999}'.format(1) }}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% set a = [] %}{% set _ = a.append(a) %}{{ a }}",
      "{% set a = [] %}{% set _ = a.append(a) %}{{ a|tojson }}",
      "{% set a = [] %}{% set b = [] %}{% set _ = a.append(b) %}{% set _ = b.append(a) %}{{ a == b and a < b }}",
      "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{{ 2 ** 2 ** 99 }}",
      "{{ 99999999999999999999999999 }}",
      std::string(100'000, '(').insert(0, "{{ "),
      "{{ " + std::string(100'000, '[') + " }}",
      "{{ " + std::string(100'000, '-') + "1 }}",
      std::string(2 << 20, 'a'),
      "{% raw %}" + std::string(100'000, '{') + "%",
  };
  for (const std::string& bomb : bombs) EXPECT_NE(failure(bomb), "") << bomb.substr(0, 80);

  std::string nested;
  for (int i = 0; i < 10'000; ++i) nested += "{% if 1 %}";
  EXPECT_NE(failure(nested), "");
  std::string chain = "{{ 1";
  for (int i = 0; i < 100'000; ++i) chain += "+1";
  EXPECT_NE(failure(chain + " }}"), "");
}

TEST(ChatTemplateSandbox, S11NothingButValuesCanBeReached) {
  const Json user = object({{"x", "text"}, {"d", object({{"__class__", 1}})}});

  EXPECT_EQ(join(pieces("{{ '{0.__class__}'.format(x) }}{{ x.__class__ }}{{ d.__class__ }}", user)), "");
  EXPECT_NE(failure("{{ '{0.__class__.__mro__}'.format(x) }}", {}, user), "");
  EXPECT_NE(failure("{{ x.__class__.__mro__ }}", {}, user).find("unsafe"), std::string::npos);
  EXPECT_NE(failure("{{ d.update(a=1) }}", {}, user).find("unsafe"), std::string::npos);
  for (const char* tag : {"include 'x'", "import 'x' as y", "from 'x' import y", "extends 'x'"}) {
    EXPECT_NE(failure(std::string("{% ") + tag + " %}").find("not supported"), std::string::npos);
  }
}

TEST(ChatTemplateErrors, SayTheLineOrTheTemplatesOwnWords) {
  EXPECT_EQ(failure("a\n{{ raise_exception('Roles must alternate') }}"), "Roles must alternate");
  EXPECT_EQ(failure("a\n\n{{ x.y }}"), "chat template line 3: 'x' is undefined");
  EXPECT_EQ(failure("a\n{% if x"), "chat template line 2: a tag is not closed by '%}'");
}

}  // namespace
}  // namespace quern
