// The grammars of calls take what real templates render, and nothing but calls where calls are forced.
#include "text/reply/call_grammar.h"

#include <gtest/gtest.h>

#include "text/constraint.h"
#include "text/reply/testing.h"
#include "text/tool_calls/testing.h"

namespace quern {
namespace {

constexpr int32_t kEnd = 256;

/// Every byte is a token, then comes the end, then markers.
class ByteVocabulary final : public MarkerVocabulary {
 public:
  explicit ByteVocabulary(std::vector<std::string_view> specials) : MarkerVocabulary(std::move(specials)) {
    for (int i = 0; i < 256; ++i) bytes_.emplace_back(1, static_cast<char>(i));
    bytes_.emplace_back("</s>");
  }
  std::string_view token_text(int32_t id) const override {
    if (id >= 0 && id <= kEnd) return bytes_[static_cast<size_t>(id)];
    return MarkerVocabulary::token_text(id - kEnd - 1);
  }
  std::optional<int32_t> id_of(std::string_view text) const override {
    const auto id = MarkerVocabulary::id_of(text);
    return id ? std::optional<int32_t>(*id + kEnd + 1) : std::nullopt;
  }
  bool is_special(int32_t id) const override { return id >= kEnd; }
  int size() const override { return kEnd + 1 + MarkerVocabulary::size(); }

 private:
  std::vector<std::string> bytes_;
};

struct Spoken {
  std::shared_ptr<const ByteVocabulary> vocabulary;
  ReplyFormat format;
  ReplyOptions options;

  Spoken(std::string_view dialect, std::string_view reasoning, bool special) {
    std::vector<std::string_view> markers;
    if (special) markers = find_dialect(dialect).value()->markers;
    vocabulary = std::make_shared<const ByteVocabulary>(markers);
    format = ReplyFormat::make(dialect, reasoning, "", *vocabulary).value();
    options.calls = true;
  }

  std::vector<int32_t> tokens(std::string_view text) const {
    std::vector<int32_t> ids;
    while (!text.empty()) {
      std::string_view found = text.substr(0, 1);
      for (const std::string& marker : format.special_markers()) {
        if (text.starts_with(marker)) found = text.substr(0, marker.size());
      }
      ids.push_back(found.size() == 1 ? static_cast<unsigned char>(found[0]) : *vocabulary->id_of(found));
      text.remove_prefix(found.size());
    }
    return ids;
  }

  /// With marks before special tokens.
  std::string as_read(std::string_view reply) const {
    std::string text;
    for (const int32_t id : tokens(reply)) {
      if (id > kEnd) text += kSpecialMark;
      text += vocabulary->token_text(id);
    }
    return text;
  }

  std::unique_ptr<ConstraintMatcher> start(bool forced) const {
    const auto grammar = reply_grammar(format, *vocabulary, options, forced);
    if (!grammar) return nullptr;
    ConstraintCompiler compiler(vocabulary, vocabulary->size(), {kEnd});
    const auto compiled = compiler.compile({ConstraintSpec::Kind::structural_tag, grammar->text, {}});
    EXPECT_TRUE(compiled.ok()) << compiled.error().message << "\n" << grammar->text;
    return compiled.ok() ? (*compiled)->start() : nullptr;
  }

  /// How much of a reply the grammar takes; all of it and the end: npos.
  size_t taken(std::string_view reply, bool forced) const {
    const auto matcher = start(forced);
    if (!matcher) return 0;
    const std::vector<int32_t> ids = tokens(reply);
    for (size_t i = 0; i < ids.size(); ++i) {
      if (!matcher->accept(ids[i])) return i;
    }
    return matcher->complete() ? std::string_view::npos : ids.size();
  }
};

TEST(CallGrammar, TakesWhatTemplatesRender) {
  for (const Json& one : call_cases(QUERN_SOURCE_DIR).find("cases")->items()) {
    const std::string reply = *one.string("reply");
    const bool seed = reply.find("</seed:think>") != std::string::npos;
    for (const bool special : {false, true}) {
      Spoken spoken(*one.string("dialect"), seed ? "seed_oss" : "qwen3", special);
      spoken.options.tools = case_tools(QUERN_SOURCE_DIR);
      spoken.options.thinking = *one.boolean("opened");
      // Where values may have anything in them, or markers are no tokens, nothing can be watched.
      if (!special && spoken.format.dialect()->name == "openai") continue;
      if (special && spoken.format.dialect()->name == "glm45") continue;
      EXPECT_EQ(spoken.taken(reply, false), std::string_view::npos)
          << *one.string("template") << ": " << *one.string("title") << (special ? ", special" : "") << "\n"
          << reply;
    }
  }
}

TEST(CallGrammar, ForcesACallAndReadsItBack) {
  struct Case {
    std::string_view dialect, reply;
  };
  const std::vector<Case> all = {
      {"hermes", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"x\"}}\n</tool_call>"},
      {"qwen3_coder",
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nx\n</parameter>\n</function>\n</tool_call>"},
      {"glm45", "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>x</arg_value>\n</tool_call>"},
      {"deepseek_v3",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": "
       "\"x\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
      {"llama3_json", "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"x\"}}"},
      {"json", "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"x\"}}"},
      {"pythonic", "[get_weather(city='x')]"},
      {"pythonic", "[get_weather(city=\"x\", days=3)]"},
      {"granite", "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"x\"}}"},
      {"deepseek_v31",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": "
       "\"x\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
      {"kimi_k2",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": "
       "\"x\"}<|tool_call_end|><|tool_calls_section_end|>"},
      {"mistral", "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"x\"}"},
      {"mistral", "[TOOL_CALLS]get_weather[CALL_ID]abcdefgh0[ARGS]{\"city\": \"x\"}"},
      {"mistral", "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"x\"}, \"id\": \"abcdefgh0\"}]"},
      {"openai", "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"x\"}"},
      {"openai", " to=functions.get_weather<|channel|>commentary json<|message|>{\"city\": \"x\"}"},
  };
  for (const Case& one : all) {
    SCOPED_TRACE(one.dialect);
    Spoken spoken(one.dialect, "none", one.dialect == "openai" || one.dialect == "mistral");
    spoken.options.tools = case_tools(QUERN_SOURCE_DIR);
    EXPECT_EQ(spoken.taken(one.reply, true), std::string_view::npos) << one.reply;
    EXPECT_EQ(spoken.taken("I will not", true), 0U);
    std::string other(one.reply);
    const size_t at = other.find("get_weather");
    other.replace(at, 11, "get_feather");
    EXPECT_LT(spoken.taken(other, true), other.size());

    spoken.options.eager = true;
    const ReadReply reply = read_reply(spoken.format, spoken.options, spoken.as_read(one.reply));
    ASSERT_EQ(reply.calls.size(), 1U) << reply.shown();
    EXPECT_EQ(reply.calls[0].name, "get_weather");
    EXPECT_EQ(Json::parse(reply.calls[0].arguments)->string("city"), "x");
    EXPECT_EQ(reply.content, "");
  }
}

TEST(CallGrammar, EndsTheSpaceInsideACall) {
  Spoken spoken("hermes", "none", false);
  spoken.options.tools = case_tools(QUERN_SOURCE_DIR);
  const std::string start = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {";

  EXPECT_GT(spoken.taken(start + std::string(100, '\n'), true), start.size());
  EXPECT_LT(spoken.taken(start + std::string(100, '\n'), true), start.size() + 50);
}

TEST(CallGrammar, LetsReasoningComeFirst) {
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  Spoken spoken("hermes", "qwen3", false);
  spoken.options.tools = {{"f", Json()}};

  EXPECT_EQ(spoken.taken("<think>\nso\n</think>\n\n" + call, true), std::string_view::npos);
  EXPECT_EQ(spoken.taken(call, true), std::string_view::npos);
  spoken.options.thinking = true;
  EXPECT_EQ(spoken.taken("so\n</think>\n\n" + call, true), std::string_view::npos);
  EXPECT_LT(spoken.taken("so\n</think>\n\nno call", true), 20U);
}

struct Watched {
  std::string_view dialect;
  bool special;
  std::string_view good;  // a reply with calls
  std::string_view bad;   // one whose arguments the schema does not allow
};

const std::vector<Watched>& watched() {
  static const std::vector<Watched> all = {
      {"llama3_json", false,
       "So:\n"
       R"({"name": "get_weather", "parameters": {"city": "x"}}; and so on)",
       R"({"name": "get_weather", "parameters": {"town)"},
      {"llama3_json", true, R"(<|python_tag|>{"name": "get_weather", "parameters": {"city": "x"}})",
       R"(<|python_tag|>{"name": "get_weather", "parameters": {"city": 5)"},
      {"json", false, "I do.\n{\"name\":\"get_weather\",\"arguments\":{\"city\": \"x\"}}\nDone.",
       R"({"name":"get_weather","arguments":{"city": x)"},
      {"json", false, "```json\n{\n  \"name\": \"get_weather\",\n  \"arguments\": {\n    \"city\": \"x\"\n  }\n}\n```",
       "```json\n{\n  \"name\": \"get_weather\",\n  \"arguments\": [1"},
      {"json", false, R"([{"name": "get_weather", "arguments": {"city": "x"}},
 {"name": "get_weather", "arguments": {"city": "y", "days": 2}}])",
       R"([{"name": "get_weather", "arguments": {"city": "x"}}, {"name": "get_weather", "arguments": {}})"},
      {"granite", true, R"(Yes.<|tool_call|>[{"name": "get_weather", "arguments": {"city": "x"}}] Then.)",
       R"(<|tool_call|>[{"name": "get_feather")"},
      {"granite", false, R"(functools[{"name": "get_weather", "arguments": {"city": "x", "days": 2}}])",
       R"(functools[{"name": "get_weather", "arguments": {"city": "x", "days": "2")"},
      {"granite", false, R"(<TOOLCALL>[{"name": "get_weather", "arguments": {"city": "x"}}]</TOOLCALL>)",
       R"(<TOOLCALL>[])"},
      {"pythonic", false, "First:\n[get_weather(city='a\\'b', exact=True), get_weather(city=\"y\")] Done.",
       "Second:\n[get_weather(5)"},
      {"pythonic", false, "[get_weather(city='x', days=12)]", "[get_weather(days=12)"},
      {"pythonic", true, "Both.<|python_start|>[get_weather(city='x'), get_weather(city='y')]<|python_end|>",
       "<|python_start|>[get_weather(city='x', 5)"},
      {"openai", true,
       "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
       "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"x\"}",
       "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": 5"},
      {"openai", true, " to=functions.get_weather<|channel|>analysis <|constrain|>json<|message|>{\"city\": \"x\"}",
       "<|channel|>commentary to=functions.get_feather"},
  };
  return all;
}

TEST(CallGrammar, WaitsForACallToBegin) {
  for (const Watched& one : watched()) {
    SCOPED_TRACE(one.good);
    Spoken spoken(one.dialect, "none", one.special);
    spoken.options.tools = case_tools(QUERN_SOURCE_DIR);
    EXPECT_EQ(spoken.taken(one.good, false), std::string_view::npos);
    EXPECT_LT(spoken.taken(one.bad, false), spoken.tokens(one.bad).size()) << one.bad;
    const std::string text = spoken.as_read(one.good);
    const ReadReply whole = read_reply(spoken.format, spoken.options, text);
    EXPECT_FALSE(whole.calls.empty());
    for (size_t cut = 0; cut <= text.size(); ++cut)
      EXPECT_EQ(read_reply(spoken.format, spoken.options, text, {cut}), whole) << cut;
  }
}

TEST(CallGrammar, TakesPythonArgumentsOfAnyKind) {
  Spoken spoken("pythonic", "none", false);
  spoken.options.tools = {{"f", Json::parse(R"({"type":"object","additionalProperties":true})").value()},
                          {"g", Json::parse(R"({"type":"object","additionalProperties":{"type":"string"}})").value()},
                          {"h", Json::parse(R"({"type":"object","additionalProperties":false})").value()}};
  EXPECT_EQ(spoken.taken("[f(a=1, b='x'), g(c='y'), h()]", true), std::string_view::npos);
  EXPECT_NE(spoken.taken("[h(a=1)]", true), std::string_view::npos);

  spoken.options.tools = {
      {"f", Json::parse(R"({"type":"object","properties":{"$filter":{"type":"string"}}})").value()}};
  EXPECT_EQ(spoken.taken(R"({"name": "f", "arguments": {"$filter": "x"}})", true), std::string_view::npos);
  EXPECT_NE(spoken.taken("[f($filter='x')]", true), std::string_view::npos);
  EXPECT_EQ(spoken.start(false), nullptr);
}

TEST(CallGrammar, LetsTextBeThatOnlyLooksLikeACall) {
  struct Case {
    std::string_view dialect, text;
  };
  for (const Case& one :
       {Case{"json", R"({"name": "Bob", "arguments": 5})"}, Case{"json", R"({"name": "get_weather", "description)"},
        Case{"llama3_json", R"(An object has a {"name": ...}.)"}, Case{"pythonic", "[1, 2, f(x)] get_weather(city)"},
        Case{"pythonic", "Call foo(a, get_weather(city)) or get_time, get_weather(city)."},
        Case{"granite", "functools.partial(print)"}, Case{"granite", R"({"name": "get_weather", "arguments": 5})"}}) {
    Spoken spoken(one.dialect, "none", false);
    spoken.options.tools = case_tools(QUERN_SOURCE_DIR);
    EXPECT_EQ(spoken.taken(one.text, false), std::string_view::npos) << one.dialect << ": " << one.text;
  }
  Spoken harmony("openai", "none", true);
  harmony.options.tools = case_tools(QUERN_SOURCE_DIR);
  EXPECT_EQ(harmony.taken("<|channel|>final<|message|>No {\"name\": 5} call.", false), std::string_view::npos);
}

TEST(CallGrammar, WhatATriggerMayMissIsReadWhole) {
  for (const Watched& one : watched()) {
    Spoken spoken(one.dialect, "none", one.special);
    spoken.options.tools = case_tools(QUERN_SOURCE_DIR);
    const bool sure = one.dialect == "openai";
    EXPECT_EQ(reply_grammar(spoken.format, *spoken.vocabulary, spoken.options, false)->sure, sure) << one.dialect;
    EXPECT_TRUE(reply_grammar(spoken.format, *spoken.vocabulary, spoken.options, true)->sure) << one.dialect;
  }
}

TEST(CallGrammar, ManyToolsFit) {
  Spoken spoken("json", "none", false);
  const Json parameters = case_tools(QUERN_SOURCE_DIR)[0].parameters;
  for (int i = 0; i < 300; ++i) spoken.options.tools.push_back({fmt::format("tool_{}", i), parameters});

  EXPECT_EQ(spoken.taken(R"({"name":"tool_299","arguments":{"city": "x"}})", false), std::string_view::npos);
  const std::string bad = R"({"name": "tool_299", "arguments": {"city": 5}})";
  EXPECT_LT(spoken.taken(bad, false), bad.size());
}

TEST(CallGrammar, HarmonyNeedsItsMarkersAsTokens) {
  Spoken spoken("openai", "none", false);
  spoken.options.tools = case_tools(QUERN_SOURCE_DIR);
  EXPECT_EQ(spoken.start(false), nullptr);
}

TEST(CallGrammar, PythonsArgumentsFollowTheSchema) {
  const auto schema = Json::parse(R"({"type": "object", "required": ["b"], "properties": {
      "a": {"type": "integer"},
      "b": {"anyOf": [{"type": "string"}, {"type": "null"}]},
      "c": {"enum": ["it's", 2, true]},
      "d": {"type": "array", "items": {"$ref": "#/$defs/node"}},
      "e": {"type": ["number", "boolean"]}, "f": {}},
      "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "k": {"const": 1}}},
                "loop": {"$ref": "#/$defs/loop"}}})");
  ASSERT_TRUE(schema.ok()) << schema.error().message;
  Spoken spoken("pythonic", "none", false);
  spoken.options.tools = {{"f", *schema}, {"g", Json()}, {"h", Json().set("type", "object")}};
  for (const std::string_view good :
       {"[f(b=None)]", "[f(a=-3, b='x')]", "[f(b=\"\", c='it\\'s')]", "[f(b='',c=\"it's\")]", "[f(b='', c=2)]",
        "[f(b='', c=True)]", "[f(b='', d=[])]", "[f(b='', d=[{}, {'next': {\"k\": 1}}])]", "[f(b='', e=1.5e-3)]",
        "[f(b='', e=False, f={'x': [None, -1]})]", "[f(b='a\\x41\\n\\\\')]", "[f(b='\nraw \\ space')]", "[g()]",
        "[h()]", "[h(anything=[1, 2], more='x')]"}) {
    EXPECT_EQ(spoken.taken(good, true), std::string_view::npos) << good;
    const ReadReply reply = read_reply(spoken.format, spoken.options, good);
    ASSERT_EQ(reply.calls.size(), 1U) << good << reply.shown();
    EXPECT_TRUE(Json::parse(reply.calls[0].arguments).ok()) << reply.shown();
  }
  for (const std::string_view bad :
       {"[f()]", "[f(a=3)]", "[f(b='x', a=3)]", "[f(b=5)]", "[f(b='', c=3)]", "[f(b='', d=[1])]", "[f(b='', e=None)]",
        "[f(a=03, b='')]", "[f(b='', z=1)]", "[f(b='\\ud800')]", "[f(b='\\x8')]", "[g(a=1)]", "[h(a)]"}) {
    EXPECT_LT(spoken.taken(bad, true), bad.size()) << bad;
  }
}

}  // namespace
}  // namespace quern
