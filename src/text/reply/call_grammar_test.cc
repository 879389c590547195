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

  std::unique_ptr<ConstraintMatcher> start(bool forced) const {
    const auto text = reply_grammar(format, *vocabulary, options, forced);
    if (!text) return nullptr;
    ConstraintCompiler compiler(vocabulary, vocabulary->size(), {kEnd});
    const auto compiled = compiler.compile({ConstraintSpec::Kind::structural_tag, *text, {}});
    EXPECT_TRUE(compiled.ok()) << compiled.error().message << "\n" << *text;
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
      if (!reply_grammar(spoken.format, *spoken.vocabulary, spoken.options, false)) continue;
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
      {"pythonic", "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"x\"}}"},
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

    std::string text;
    for (const int32_t id : spoken.tokens(one.reply)) {
      if (id > kEnd) text += kSpecialMark;
      text += spoken.vocabulary->token_text(id);
    }
    spoken.options.eager = true;
    const ReadReply reply = read_reply(spoken.format, spoken.options, text);
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

TEST(CallGrammar, HasNoneForTextThatOnlyMayBeACall) {
  for (const std::string_view dialect : {"json", "llama3_json", "pythonic", "granite", "openai"}) {
    Spoken spoken(dialect, "none", false);
    spoken.options.tools = case_tools(QUERN_SOURCE_DIR);
    EXPECT_EQ(spoken.start(false), nullptr) << dialect;
  }
}

}  // namespace
}  // namespace quern
