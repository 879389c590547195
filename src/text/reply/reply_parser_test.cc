// Replies with tool calls and reasoning: as real templates render them, malformed, cut off, and cut into any two
// pieces.
#include <gtest/gtest.h>
#include <numeric>
#include <random>

#include "text/reply/testing.h"
#include "text/tool_calls/testing.h"

namespace quern {
namespace {

ReplyFormat format_of(std::string_view dialect, std::string_view reasoning = "none", bool special = false) {
  std::vector<std::string_view> markers;
  if (special) markers = find_dialect(dialect).value()->markers;
  auto format = ReplyFormat::make(dialect, reasoning, "", MarkerVocabulary(markers));
  EXPECT_TRUE(format.ok());
  return std::move(format).value();
}

/// The reply as it comes when the markers of the format are special tokens.
std::string marked(const ReplyFormat& format, std::string text) {
  for (const std::string& marker : format.special_markers()) {
    for (size_t at = text.find(marker); at != std::string::npos; at = text.find(marker, at + marker.size() + 1))
      text.insert(at, 1, kSpecialMark);
  }
  return text;
}

/// The whole reply, after a check that every way to cut it in two, and every byte alone, reads the same.
ReadReply read_everyhow(const ReplyFormat& format, const ReplyOptions& options, const std::string& text) {
  ReadReply whole = read_reply(format, options, text);
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const ReadReply split = read_reply(format, options, text, {cut});
    EXPECT_EQ(split.shown(), whole.shown()) << "cut at " << cut << " of\n" << text;
    if (split != whole) return whole;
  }
  std::vector<size_t> cuts(text.size());
  std::iota(cuts.begin(), cuts.end(), size_t{0});
  EXPECT_EQ(read_reply(format, options, text, cuts).shown(), whole.shown()) << "byte by byte\n" << text;
  return whole;
}

ReplyOptions calling(std::vector<Tool> tools = case_tools(QUERN_SOURCE_DIR)) {
  ReplyOptions options;
  options.tools = std::move(tools);
  options.calls = true;
  return options;
}

void expect_case(const Json& wanted, const ReadReply& reply) {
  EXPECT_EQ(reply.content, *wanted.string("content"));
  EXPECT_EQ(reply.reasoning, *wanted.string("reasoning"));
  const Json::Array& calls = wanted.find("calls")->items();
  ASSERT_EQ(reply.calls.size(), calls.size()) << reply.shown();
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(reply.calls[i].name, *calls[i].string("name"));
    const auto arguments = Json::parse(reply.calls[i].arguments);
    ASSERT_TRUE(arguments.ok()) << reply.calls[i].arguments;
    EXPECT_EQ(*arguments, *calls[i].find("arguments")) << reply.calls[i].arguments;
  }
}

std::string_view reasoning_of(std::string_view reply) {
  if (reply.find("</seed:think>") != std::string_view::npos) return "seed_oss";
  return "qwen3";
}

TEST(ToolCalls, C105ReadsBackWhatTemplatesRender) {
  for (const Json& one : call_cases(QUERN_SOURCE_DIR).find("cases")->items()) {
    SCOPED_TRACE(*one.string("template") + ": " + *one.string("title"));
    const std::string reply = *one.string("reply");
    for (int variant = 0; variant < 4; ++variant) {
      SCOPED_TRACE(variant);
      const ReplyFormat format = format_of(*one.string("dialect"), reasoning_of(reply), variant % 2 == 1);
      ReplyOptions options = calling();
      options.eager = variant >= 2;
      options.thinking = *one.boolean("opened");
      expect_case(one, read_everyhow(format, options, marked(format, reply)));
    }
  }
}

struct Malformed {
  std::string_view dialect;
  std::string_view text;
};

TEST(ToolCalls, C105KeepsMalformedCallsAsContent) {
  const std::vector<Malformed> all = {
      {"hermes", "a <tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"x\",}}\n</tool_call> b"},
      {"hermes", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"x\"}"},
      {"hermes", "<tool_call>{\"arguments\": {}}</tool_call>"},
      {"hermes", "<tool_call>{\"name\": 5}</tool_call>"},
      {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>"},
      {"hermes", "<tool_call></tool_call>"},
      {"hermes", "<tool_call"},
      {"qwen3_coder", "<tool_call>\n<function=get_weather>\n<parameter=city>\nx\n</function>\n</tool_call>"},
      {"qwen3_coder", "<tool_call>\n<function=>\n</function>\n</tool_call>"},
      {"qwen3_coder", "<tool_call>nothing</tool_call>"},
      {"seed_oss", "<seed:tool_call><function=f</seed:tool_call>"},
      {"glm45", "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>x</tool_call>"},
      {"glm45", "<tool_call>{\"name\": \"f\"}</tool_call>"},
      {"llama3_json", "{\"name\": \"get_weather\", \"parameters\": {\"city\": 1e}}"},
      {"llama3_json", "{\"name\": \"unknown\", \"parameters\": {}}"},
      {"llama3_json", "{\"answer\": 42}"},
      {"llama3_json", "<|python_tag|>print(1)"},
      {"json", "{\"name\": \"get_weather\", \"more\": 1, \"arguments\": {}}"},
      {"json", "[1, 2, {\"name\": \"get_weather\"}]"},
      {"json", "[]"},
      {"pythonic", "[get_weather(city=unquoted)]"},
      {"pythonic", "[get_weather(\"x\")]"},
      {"pythonic", "[see above](http://x) and [1]"},
      {"pythonic", "[get_weather(city='x'"},
      {"mistral", "[TOOL_CALLS]get_weather[ARGS]{\"city\": }"},
      {"mistral", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}"},
      {"mistral", "[TOOL_CALLS] and so on"},
      {"deepseek_v3",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```\n{}\n```<｜tool▁call▁end｜>"},
      {"deepseek_v31", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\"<｜tool▁call▁end｜>"},
      {"deepseek_v31", "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>"},
      {"kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0 {}<|tool_call_end|>"},
      {"kimi_k2",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": tru}"},
      {"granite", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 01}}]"},
      {"granite", "functools are fine"},
  };
  for (const Malformed& one : all) {
    SCOPED_TRACE(std::string(one.dialect) + ": " + std::string(one.text));
    for (const bool special : {false, true}) {
      const ReplyFormat format = format_of(one.dialect, "none", special);
      const ReadReply reply = read_everyhow(format, calling(), marked(format, std::string(one.text)));
      EXPECT_EQ(reply.content, one.text);
      EXPECT_TRUE(reply.calls.empty()) << reply.shown();
    }
  }
}

TEST(ToolCalls, GoesOnAfterAMalformedCall) {
  const ReadReply reply = read_everyhow(
      format_of("hermes"), calling(),
      "A <tool_call>{oops}</tool_call> B <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call> C");

  EXPECT_EQ(reply.content, "A <tool_call>{oops}</tool_call> B  C");
  ASSERT_EQ(reply.calls.size(), 1U);
  EXPECT_EQ(reply.calls[0].arguments, "{\"a\": 1}");
}

TEST(ToolCalls, KeepsTextBetweenAndAfterCalls) {
  const ReadReply reply = read_everyhow(
      format_of("hermes"), calling(),
      "one\n\n<tool_call>{\"name\": \"f\"}</tool_call> two <tool_call>{\"name\": \"g\"}</tool_call>\nthree\n");

  EXPECT_EQ(reply.content, "one\n\n two \nthree");
  ASSERT_EQ(reply.calls.size(), 2U);
  EXPECT_EQ(reply.calls[1].arguments, "{}");
}

TEST(ToolCalls, LeavesAReplyWithoutCallsAsItIs) {
  for (const std::string_view dialect : {"hermes", "json", "pythonic", "mistral", "openai", "glm45", "kimi_k2"}) {
    const std::string text = "  \n Look: {\"a\": [1]} <tool [x] <|start \xE2\x82\xAC\n\n";
    EXPECT_EQ(read_everyhow(format_of(dialect), calling(), text).content, text) << dialect;
  }
}

TEST(ToolCalls, LooksForCallsOnlyWhenToolsAreOffered) {
  const std::string text = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";

  EXPECT_EQ(read_everyhow(format_of("hermes"), ReplyOptions(), text).content, text);
}

TEST(ToolCalls, TakesSpecialMarkersAsTokensOnly) {
  const ReplyFormat format = format_of("mistral", "none", true);
  const std::string text = "[TOOL_CALLS]f[ARGS]{}";

  EXPECT_EQ(read_everyhow(format, calling(), text).content, text);
  EXPECT_EQ(read_everyhow(format, calling(), marked(format, text)).calls.size(), 1U);
}

TEST(ToolCalls, StopsAfterTheFirstCallWhenOnlyOneIsWanted) {
  ReplyOptions options = calling();
  options.one_call = true;
  const std::string text =
      "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}] more";

  EXPECT_EQ(read_everyhow(format_of("mistral"), options, text).shown(), "content <> reasoning <> call f <{}> id <>");
}

TEST(ToolCalls, ABrokenCallThatWasPassedOnIsTheOnlyOneToo) {
  ReplyOptions options = calling();
  options.one_call = options.eager = true;
  const std::string text =
      "<tool_call>\n<function=f>\n<parameter=s>\na\n</parameter>\n<function=g>\n</function>\n</tool_call>";

  EXPECT_EQ(read_everyhow(format_of("qwen3_coder"), options, text).calls.size(), 1U);
}

TEST(ToolCalls, PassesArgumentsOnAsTheyArriveWhenAGrammarWatches) {
  ReplyOptions options = calling();
  options.eager = true;
  const ReplyFormat format = format_of("hermes");
  ReplyParser parser(format, options);

  const auto first = parser.add("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a");
  const auto second = parser.add("\": [1, ");

  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[0].text, "f");
  EXPECT_EQ(first[1].text, "{\"a");
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].text, "\": [1, ");
}

TEST(ToolCalls, ReadsNamesAndArgumentsInAnyShape) {
  const std::vector<std::pair<std::string, std::string>> all = {
      {R"({"arguments": {"a": 1}, "name": "f"})", R"({"a": 1})"},
      {R"({"name": "f", "arguments": "{\"a\": 2}"})", R"({"a": 2})"},
      {R"({"name": "f", "arguments": null})", "{}"},
      {R"({"type": "function", "function": {"name": "f", "arguments": {"a": 3}}})", R"({"a": 3})"},
      {R"({"name": "f", "parameters": {"a": "x)"
       "\n\ty"
       R"("}})",
       R"({"a": "x\n\ty"})"},
  };
  for (const auto& [text, arguments] : all) {
    for (const bool eager : {false, true}) {
      ReplyOptions options = calling();
      options.eager = eager;
      const ReadReply reply = read_everyhow(format_of("hermes"), options, "<tool_call>" + text + "</tool_call>");
      ASSERT_EQ(reply.calls.size(), 1U) << text;
      EXPECT_EQ(reply.calls[0].name, "f");
      EXPECT_EQ(reply.calls[0].arguments, arguments);
      EXPECT_EQ(reply.content, "");
    }
  }
}

// What vLLM's issues 10395, 21360 and 21544 were about.
TEST(ToolCalls, B074ToB077ReadsAwkwardArguments) {
  const std::vector<std::string> all = {R"({"wd": 23, "sd": 0.8, "injection": "ZSJB39", "module_id": "M1"})",
                                        R"({"rows": [{"a": 1}, {"b": [{"c": "]}"}]}]})",
                                        R"({"command": "mkdir -p test/{a,b"})"};
  for (const std::string& arguments : all) {
    for (const auto& [dialect, text] : std::vector<std::pair<std::string, std::string>>{
             {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": " + arguments + "}\n</tool_call>"},
             {"mistral", "[TOOL_CALLS]f" + arguments},
             {"llama3_json", "<|python_tag|>{\"name\": \"f\", \"parameters\": " + arguments + "}"},
             {"json", "```json\n{\"name\": \"f\", \"arguments\": " + arguments + "}\n```"}}) {
      const ReadReply reply = read_everyhow(format_of(dialect), calling({{"f", Json()}}), text);
      ASSERT_EQ(reply.calls.size(), 1U) << text;
      EXPECT_EQ(reply.calls[0].arguments, arguments);
      EXPECT_EQ(reply.content, "") << text;
    }
  }
}

TEST(ToolCalls, ReadsSeveralCallsOfLlama) {
  const std::string call = R"({"name": "get_weather", "parameters": {"city": "x"}})";
  for (const std::string& text : {call + "; " + call, call + "\n" + call, "<|python_tag|>" + call + ";" + call}) {
    const ReadReply reply = read_everyhow(format_of("llama3_json"), calling(), text);
    EXPECT_EQ(reply.calls.size(), 2U) << text;
    EXPECT_EQ(reply.content, "") << text;
  }
}

TEST(ToolCalls, ReadsPythonLiterals) {
  const ReadReply reply =
      read_everyhow(format_of("pythonic"), calling(),
                    "[get_weather(city='it\\'s \\u00e9\\n\"q\"', days=-3, exact=True, l=[1, 2.5e-3, None], t=(1, 'a'), "
                    "d={'k': {}, \"m\": False},), save_file()]");

  ASSERT_EQ(reply.calls.size(), 2U) << reply.shown();
  EXPECT_EQ(reply.calls[0].arguments,
            "{\"city\": \"it's \xC3\xA9\\n\\\"q\\\"\", \"days\": -3, \"exact\": true, \"l\": [1, 2.5e-3, null], "
            "\"t\": [1, \"a\"], \"d\": {\"k\": {}, \"m\": false}}");
  EXPECT_EQ(reply.calls[1].arguments, "{}");
  const ReadReply escapes = read_everyhow(format_of("pythonic"), calling(), R"([get_weather(city='\a\b\f\v\d')])");
  EXPECT_EQ(Json::parse(escapes.calls.at(0).arguments)->string("city"), "\a\b\f\v\\d");
}

TEST(ToolCalls, GivesUntypedValuesTheTypesOfTheSchema) {
  const Json schema = Json::parse(R"({"properties": {"s": {"type": "string"}, "i": {"type": "integer"},
      "b": {"type": "boolean"}, "o": {"type": ["object", "null"]}, "u": {"anyOf": [{"type": "integer"},
      {"type": "string"}]}, "e": {"enum": ["1", 2]}}})")
                          .value();
  const auto call = [](std::string_view key, std::string_view value) {
    return fmt::format("<tool_call>\n<function=f>\n<parameter={}>\n{}\n</parameter>\n</function>\n</tool_call>", key,
                       value);
  };
  const std::vector<std::array<std::string_view, 3>> all = {{"s", "5", R"({"s": "5"})"},
                                                            {"s", "\n x ", R"({"s": "\n x "})"},
                                                            {"i", " 5 ", R"({"i": 5})"},
                                                            {"i", "five", R"({"i": "five"})"},
                                                            {"b", "True", R"({"b": true})"},
                                                            {"b", "false", R"({"b": false})"},
                                                            {"o", "{\"a\": 1}", R"({"o": {"a": 1}})"},
                                                            {"o", "None", R"({"o": null})"},
                                                            {"u", "7", R"({"u": 7})"},
                                                            {"u", "x", R"({"u": "x"})"},
                                                            {"e", "1", R"({"e": "1"})"},
                                                            {"e", "2", R"({"e": 2})"},
                                                            {"unknown", "[1]", R"({"unknown": [1]})"},
                                                            {"unknown", "a b", R"({"unknown": "a b"})"}};
  for (const auto& [key, value, wanted] : all) {
    const ReadReply reply = read_everyhow(format_of("qwen3_coder"), calling({{"f", schema}}), call(key, value));
    ASSERT_EQ(reply.calls.size(), 1U) << key << " " << value;
    EXPECT_EQ(reply.calls[0].arguments, wanted);
  }
}

/// Markers and pieces of calls in any order: what a confused model may say.
std::string soup(std::mt19937& random, const Dialect& dialect) {
  static constexpr std::string_view pieces[] = {"{",
                                                "}",
                                                "[",
                                                "]",
                                                "\"",
                                                ":",
                                                ",",
                                                "{\"name\": \"get_weather\"",
                                                "\n",
                                                " ",
                                                "x",
                                                "\xC3\xA9",
                                                "null",
                                                "12.5e",
                                                "\\u00",
                                                "\"arguments\": {\"city\": \"a\"}",
                                                "</think>",
                                                "<think>",
                                                "'",
                                                "(city='a')",
                                                "get_weather",
                                                "```json",
                                                "```",
                                                "functions.get_weather:0",
                                                ">",
                                                "</function>",
                                                "to=functions.f ",
                                                "<parameter=city>",
                                                "</parameter>",
                                                "<",
                                                "\xF0\x9F\x98\x80",
                                                "\t"};
  std::vector<std::string_view> all(std::begin(pieces), std::end(pieces));
  for (int i = 0; i < 4; ++i) {
    all.insert(all.end(), dialect.markers.begin(), dialect.markers.end());
    for (const Sought& start : dialect.starts) all.push_back(start.text);
  }
  std::string text;
  for (size_t count = random() % 24; count > 0; --count) text += all[random() % all.size()];
  return text;
}

TEST(ToolCalls, S17AnyTextReadsTheSameHoweverItIsCut) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (const std::string_view name : {"hermes", "qwen3_coder", "seed_oss", "llama3_json", "pythonic", "mistral",
                                      "deepseek_v3", "openai", "glm45", "kimi_k2", "json", "granite"}) {
    for (int round = 0; round < 60; ++round) {
      const bool special = random() % 2 == 0;
      const ReplyFormat format = format_of(name, random() % 2 == 0 ? "qwen3" : "none", special);
      ReplyOptions options = calling();
      options.eager = random() % 2 == 0;
      options.one_call = random() % 4 == 0;
      options.thinking = random() % 4 == 0;
      const std::string plain = soup(random, *format.dialect());
      const std::string text = random() % 2 == 0 ? marked(format, plain) : plain;
      const ReadReply whole = read_everyhow(format, options, text);
      if (!format.separates_reasoning() && whole.calls.empty()) {
        EXPECT_EQ(whole.content, plain) << name;
      }
      if (HasFailure()) return;
    }
  }
}

TEST(Reasoning, C107IsToldApartFromContent) {
  struct Case {
    std::string_view parser, text;
    bool opened;
    std::string_view reasoning, content;
  };
  const std::vector<Case> all = {
      {"qwen3", "<think>a</think>b", false, "a", "b"},
      {"qwen3", "\n<think>\n a\n b \n</think>\n\n b\n", false, "a\n b", "b\n"},
      {"qwen3", "a</think>b", true, "a", "b"},
      {"qwen3", "<think>a</think>b", true, "a", "b"},
      {"qwen3", "a never ends", true, "a never ends", ""},
      {"qwen3", "<think>cut off</thin", false, "cut off</thin", ""},
      {"qwen3", "no <think>a</think>", false, "", "no <think>a</think>"},
      {"qwen3", " \n plain", false, "", " \n plain"},
      {"mistral", "[THINK]a[/THINK]b", false, "a", "b"},
      {"kimi", "◁think▷a◁/think▷b", false, "a", "b"},
      {"cohere_command", "<|START_THINKING|>a<|END_THINKING|>b", false, "a", "b"},
  };
  for (const Case& one : all) {
    ReplyOptions options;
    options.thinking = one.opened;
    const ReadReply reply = read_everyhow(format_of("none", one.parser), options, std::string(one.text));
    EXPECT_EQ(reply.reasoning, one.reasoning) << one.text;
    EXPECT_EQ(reply.content, one.content) << one.text;
  }
}

TEST(Reasoning, EndsWhereASpecialTokenStartsACall) {
  const ReplyFormat format = format_of("kimi_k2", "kimi_k2", true);
  const ReadReply reply = read_everyhow(
      format, calling(),
      marked(format,
             "<think>so<|tool_calls_section_begin|><|tool_call_begin|>functions.f:2<|tool_call_argument_begin|>"
             "{}<|tool_call_end|><|tool_calls_section_end|>"));

  EXPECT_EQ(reply.shown(), "content <> reasoning <so> call f <{}> id <functions.f:2>");
}

TEST(Reasoning, OfHarmonyIsInChannels) {
  for (const bool special : {false, true}) {
    const ReplyFormat format = format_of("openai", "", special);
    const auto read = [&](const std::string& text) {
      return read_everyhow(format, calling(), marked(format, text)).shown();
    };
    EXPECT_EQ(read("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>"
                   "<|start|>assistant<|channel|>final<|message|>c d<|return|>"),
              "content <c d> reasoning <a\nb>");
    EXPECT_EQ(read("<|channel|>commentary<|message|>Wait.<|end|><|start|>assistant<|channel|>commentary "
                   "to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>"),
              "content <Wait.> reasoning <> call f <{\"a\": 1}> id <>");
    EXPECT_EQ(read("<|channel|>commentary to=functions.f<|message|>{oops}<|call|>"),
              special ? "content <<|channel|>commentary to=functions.f<|message|>{oops}> reasoning <>"
                      : "content <<|channel|>commentary to=functions.f<|message|>{oops}> reasoning <>");
    EXPECT_EQ(read("<|channel|>final<|message|>cut o"), "content <cut o> reasoning <>");
    EXPECT_EQ(read("no header"), "content <no header> reasoning <>");
  }
}

TEST(ReplyFormat, IsFoundInTheTemplateWithoutAFlag) {
  const std::vector<std::array<std::string_view, 3>> all = {
      {"{{ '<tool_call>' }} </think>", "hermes", "<think>"},
      {"<tool_call> <function= <parameter=", "qwen3_coder", ""},
      {"<seed:tool_call> <function= </seed:think>", "seed_oss", "<seed:think>"},
      {"<tool_call><arg_key> </think>", "glm45", "<think>"},
      {"[TOOL_CALLS] [/THINK]", "mistral", "[THINK]"},
      {"<|start_header_id|> ipython \"parameters\": ", "llama3_json", ""},
      {"<|python_start|>", "pythonic", ""},
      {"<｜tool▁calls▁begin｜> ```json", "deepseek_v3", ""},
      {"<｜tool▁calls▁begin｜> </think>", "deepseek_v31", "<think>"},
      {"<|start|> <|channel|> <|message|>", "openai", ""},
      {"<|tool_calls_section_begin|>", "kimi_k2", ""},
      {"nothing", "json", ""}};
  for (const auto& [text, dialect, begin] : all) {
    const ReplyFormat format = ReplyFormat::make("", "", text, MarkerVocabulary({})).value();
    EXPECT_EQ(format.dialect()->name, dialect);
    EXPECT_EQ(format.thinking() == nullptr ? "" : format.thinking()->begin, begin) << text;
    EXPECT_EQ(format.opens_reasoning("x<think>\n"), begin == "<think>");
  }
}

TEST(ReplyFormat, TakesVllmsNamesAndRefusesOthers) {
  const MarkerVocabulary vocabulary({});
  EXPECT_EQ(ReplyFormat::make("qwen3_xml", "deepseek_r1", "", vocabulary)->dialect()->name, "qwen3_coder");
  EXPECT_EQ(ReplyFormat::make("none", "none", "<tool_call></think>", vocabulary)->dialect(), nullptr);
  EXPECT_NE(ReplyFormat::make("x", "", "", vocabulary).error().message.find("llama3_json"), std::string::npos);
  EXPECT_NE(ReplyFormat::make("", "x", "", vocabulary).error().message.find("deepseek_r1"), std::string::npos);
}

}  // namespace
}  // namespace quern
