// Chat over the loopback interface, answered by a scripted service: fields, texts, streams, stops.
#include "server/server_fixture.h"

namespace quern {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct FieldCase {
  std::string more;
  std::string param;
};

class ChatTest : public ServerTest {};

TEST_F(ChatTest, AnswersAsOpenAiDoes) {
  start();

  const Json body = json(chat());

  EXPECT_THAT(body.string("id").value(), StartsWith("chatcmpl-"));
  EXPECT_EQ(body.string("object"), "chat.completion");
  EXPECT_EQ(body.string("model"), "alias");
  const Json& message = *choice(body).find("message");
  EXPECT_EQ(message.string("role"), "assistant");
  EXPECT_EQ(message.string("content"), "hello");
  EXPECT_TRUE(message.find("refusal")->is_null());
  EXPECT_TRUE(choice(body).find("logprobs")->is_null());
  EXPECT_EQ(choice(body).string("finish_reason"), "stop");
  EXPECT_TRUE(choice(body).find("stop_reason")->is_null());
  EXPECT_EQ(usage(body, "completion_tokens"), 6);
  EXPECT_EQ(usage(body, "total_tokens"), 6 + usage(body, "prompt_tokens"));
  EXPECT_EQ(body.find("usage")->find("prompt_tokens_details")->integer("cached_tokens"), 1);
}

TEST_F(ChatTest, RendersTheTemplate) {
  start();

  chat();

  EXPECT_EQ(seen_prompt(), "<s>[user]hi[assistant]");
}

// With several stop strings, echo and logprobs alike: each test of streams compares with the whole answer.
TEST_F(ChatTest, StreamsTheSameTextAndUsage) {
  script("h\xC3\xA9llo \xF0\x9F\x98\x80!");
  start();

  const Json whole = json(chat());
  const StreamedAnswer streamed = stream_chat(R"("stream_options":{"include_usage":true})");

  EXPECT_EQ(header(streamed.head, "content-type"), "text/event-stream; charset=utf-8");
  EXPECT_TRUE(streamed.done);
  EXPECT_EQ(streamed.text(), content(whole));
  EXPECT_EQ(*streamed.chunks.back().find("usage"), *whole.find("usage"));
  EXPECT_TRUE(streamed.chunks.back().find("choices")->items().empty());
  int roles = 0;
  int ends = 0;
  for (size_t i = 0; i + 1 < streamed.chunks.size(); ++i) {
    const Json& chunk = streamed.chunks[i];
    EXPECT_EQ(chunk.string("object"), "chat.completion.chunk");
    EXPECT_EQ(chunk.string("id"), streamed.chunks[0].string("id"));
    EXPECT_EQ(chunk.integer("created"), streamed.chunks[0].integer("created"));
    EXPECT_TRUE(chunk.find("usage")->is_null());
    roles += choice(chunk).find("delta")->has("role") ? 1 : 0;
    ends += choice(chunk).string("finish_reason") ? 1 : 0;
  }
  EXPECT_EQ(roles, 1);
  EXPECT_EQ(ends, 1);
  EXPECT_TRUE(choice(streamed.chunks[0]).find("delta")->has("role"));
  EXPECT_EQ(choice(streamed.chunks[streamed.chunks.size() - 2]).string("finish_reason"), "stop");
}

TEST_F(ChatTest, SendsNoUsageUnlessAsked) {
  start();

  for (const Json& chunk : stream_chat().chunks) EXPECT_FALSE(chunk.has("usage"));
}

TEST_F(ChatTest, TellsUsageAllTheTimeWhenAsked) {
  start();

  int64_t last = 0;
  for (const Json& chunk : stream_chat(R"("stream_options":{"continuous_usage_stats":true})").chunks) {
    EXPECT_GE(usage(chunk, "completion_tokens"), last);
    last = usage(chunk, "completion_tokens");
  }
  EXPECT_EQ(last, 6);
}

TEST_F(ChatTest, MakesSeveralChoicesWithSeedsOfTheirOwn) {
  start();

  const Json whole = json(chat(R"("n":3,"seed":-7)"));
  const StreamedAnswer streamed = stream_chat(R"("n":3)");

  ASSERT_EQ(whole.find("choices")->items().size(), 3U);
  EXPECT_EQ(choice(whole, 2).integer("index"), 2);
  EXPECT_EQ(usage(whole, "completion_tokens"), 18);
  EXPECT_EQ(usage(whole, "prompt_tokens"), usage(json(chat()), "prompt_tokens"));
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(streamed.text(i), "hello");
  const auto seen = service_->seen();
  EXPECT_EQ(seen[0].sampling.seed, static_cast<uint64_t>(-7));
  EXPECT_EQ(seen[1].sampling.seed, static_cast<uint64_t>(-6));
}

TEST_F(ChatTest, C11CutsAtAStopStringAcrossTokens) {
  script("one STOP two");
  start();

  const Json whole = json(chat(R"("stop":["STOP","two"])"));
  const StreamedAnswer streamed = stream_chat(R"("stop":["STOP","two"])");

  EXPECT_EQ(content(whole), "one ");
  EXPECT_EQ(choice(whole).string("finish_reason"), "stop");
  EXPECT_EQ(choice(whole).string("stop_reason"), "STOP");
  EXPECT_EQ(usage(whole, "completion_tokens"), 8);
  EXPECT_EQ(streamed.text(), "one ");
  EXPECT_TRUE(service_->idle());
}

TEST_F(ChatTest, C11GivesBackWhatOnlyLookedLikeAStop) {
  script("one STO");
  start();

  EXPECT_EQ(content(json(chat(R"("stop":"STOP")"))), "one STO");
  EXPECT_EQ(stream_chat(R"("stop":"STOP","max_tokens":7)").text(), "one STO");
}

TEST_F(ChatTest, KeepsTheStopStringWhenAsked) {
  script("one STOP two");
  start();

  EXPECT_EQ(content(json(chat(R"("stop":"STOP","include_stop_str_in_output":true)"))), "one STOP");
}

TEST_F(ChatTest, StopsAtATokenAndNamesIt) {
  script("abcde");
  start();

  const Json whole = json(chat(R"("stop_token_ids":[99])"));
  const Json kept = json(chat(R"("stop_token_ids":[99],"include_stop_str_in_output":true)"));

  EXPECT_EQ(content(whole), "ab");
  EXPECT_EQ(choice(whole).integer("stop_reason"), 99);
  EXPECT_EQ(content(kept), "abc");
}

TEST_F(ChatTest, LooksForStopStringsFromMinTokensOn) {
  script("ababab");
  start();

  EXPECT_EQ(content(json(chat(R"("stop":"b","min_tokens":3)"))), "aba");
}

TEST_F(ChatTest, EndsByLength) {
  start();

  const Json whole = json(chat(R"("max_tokens":50,"max_completion_tokens":3)"));

  EXPECT_EQ(content(whole), "hel");
  EXPECT_EQ(choice(whole).string("finish_reason"), "length");
  EXPECT_EQ(usage(whole, "completion_tokens"), 3);
}

TEST_F(ChatTest, C12NeverSendsHalfACharacter) {
  script("\xF0\x9F\x98\x80\xE2\x82\xAC\xFF\xE2\x82");
  start();

  const StreamedAnswer streamed = stream_chat();

  EXPECT_EQ(streamed.text(), content(json(chat())));
  EXPECT_EQ(streamed.text(), "\xF0\x9F\x98\x80\xE2\x82\xAC\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST_F(ChatTest, GivesLogprobsOfWhatIsShown) {
  script("h\xC3\xA9y STOP");
  start();
  const std::string more = R"("logprobs":true,"top_logprobs":2,"stop":"STOP")";

  const Json whole = json(chat(more));
  const StreamedAnswer streamed = stream_chat(more);

  const Json::Array& entries = choice(whole).find("logprobs")->find("content")->items();
  std::string bytes;
  for (const Json& entry : entries) {
    for (const Json& byte : entry.find("bytes")->items()) bytes += static_cast<char>(byte.as_integer());
    EXPECT_EQ(entry.number("logprob"), -0.5);
    EXPECT_EQ(entry.find("top_logprobs")->items().size(), 2U);
  }
  EXPECT_EQ(bytes, content(whole));
  Json::Array joined;
  for (const Json& chunk : streamed.chunks) {
    const Json* logprobs = choice(chunk).present("logprobs");
    if (logprobs == nullptr) continue;
    for (const Json& entry : logprobs->find("content")->items()) joined.push_back(entry);
  }
  EXPECT_EQ(joined, entries);
}

TEST_F(ChatTest, ReturnsTokenIdsWhenAsked) {
  script("ab");
  start();

  const Json whole = json(chat(R"("return_token_ids":true)"));

  EXPECT_EQ(choice(whole).find("token_ids")->dump(), "[97,98,257]");
  EXPECT_EQ(static_cast<int64_t>(whole.find("prompt_token_ids")->items().size()), usage(whole, "prompt_tokens"));
}

TEST_F(ChatTest, JoinsTextPartsAndKnowsDevelopers) {
  start();
  const auto count = [&](const std::string& messages) {
    return usage(json(post("/v1/chat/completions", R"({"messages":)" + messages + "}")), "prompt_tokens");
  };

  EXPECT_EQ(count(R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])"),
            count(R"([{"role":"user","content":"a\nb"}])"));
  EXPECT_EQ(count(R"([{"role":"developer","content":"x"},{"role":"user","content":"y"}])"),
            count(R"([{"role":"system","content":"x"},{"role":"user","content":"y"}])"));
}

TEST_F(ChatTest, TakesAHistoryWithToolCalls) {
  start();

  const HttpResponse response = post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"a"},
      {"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{bad"}}]},
      {"role":"tool","tool_call_id":"c","content":"5"}]})");

  EXPECT_EQ(response.status, 200) << response.body;
  expect_error(post("/v1/chat/completions", R"({"messages":[{"role":"tool","content":"5"}]})"), 400,
               "messages[0].tool_call_id", "missing_required_parameter");
}

TEST_F(ChatTest, GoesOnWithTheLastMessage) {
  start();

  post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"so far"}],
      "continue_final_message":true,"add_generation_prompt":false})");

  EXPECT_EQ(seen_prompt(), "<s>[user]a[assistant]so far");
}

TEST_F(ChatTest, S12TemplateArgumentsAreVariablesOnly) {
  start();

  EXPECT_GT(usage(json(chat(R"("chat_template_kwargs":{"mood":"gay"})")), "prompt_tokens"),
            usage(json(chat()), "prompt_tokens"));
  expect_error(chat(R"("chat_template_kwargs":{"messages":[]})"), 400, "chat_template_kwargs", "invalid_value");
  expect_error(chat(R"("chat_template":"x")"), 400, "chat_template", "unsupported_parameter");
  expect_error(chat(R"("documents":[{"text":"x"}])"), 400, "documents", "unsupported_parameter");
  expect_error(chat(R"("documents":["x"])"), 400, "documents", "invalid_type");
  EXPECT_EQ(chat(R"("documents":[])").status, 200);
}

TEST_F(ChatTest, NamesEachFieldOutOfRangeS19) {
  start();
  const std::vector<FieldCase> cases = {
      {R"("temperature":2.1)", "temperature"},
      {R"("temperature":-0.1)", "temperature"},
      {R"("top_p":1.1)", "top_p"},
      {R"("top_p":0)", "top_p"},
      {R"("presence_penalty":2.1)", "presence_penalty"},
      {R"("frequency_penalty":-2.1)", "frequency_penalty"},
      {R"("n":0)", "n"},
      {R"("n":129)", "n"},
      {R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
      {R"("top_logprobs":2)", "top_logprobs"},
      {R"("max_tokens":0)", "max_tokens"},
      {R"("max_tokens":-1)", "max_tokens"},
      {R"("max_completion_tokens":1.5)", "max_completion_tokens"},
      {R"("min_p":1.1)", "min_p"},
      {R"("top_k":-2)", "top_k"},
      {R"("repetition_penalty":0)", "repetition_penalty"},
      {R"("min_tokens":5,"max_tokens":4)", "min_tokens"},
      {R"("stop":["a","b","c","d","e"])", "stop"},
      {R"("stop":"")", "stop"},
      {R"("stop":[""])", "stop"},
      {R"("logit_bias":{"abc":1})", "logit_bias"},
      {R"("logit_bias":{"259":1})", "logit_bias"},
      {R"("logit_bias":{"1":101})", "logit_bias"},
      {R"("stream_options":{"include_usage":true})", "stream_options"},
      {R"("seed":1e30)", "seed"},
      {R"("priority":99999999999)", "priority"},
  };

  for (const FieldCase& field : cases) {
    const HttpResponse response = chat(field.more);
    EXPECT_EQ(response.status, 400) << field.more;
    EXPECT_EQ(json(response).find("error")->string("param"), field.param) << response.body;
  }
}

TEST_F(ChatTest, TakesTheBoundsThemselves) {
  start();

  for (const std::string more :
       {R"("temperature":2)", R"("temperature":0)", R"("top_p":1)", R"("presence_penalty":-2)", R"("n":128)",
        R"("logprobs":true,"top_logprobs":20)", R"("max_tokens":1)", R"("stop":["a","b","c","d"])",
        R"("logit_bias":{"258":-100,"0":100})", R"("seed":9223372036854775807)", R"("top_k":-1)"}) {
    EXPECT_EQ(chat(more).status, 200) << more;
  }
}

TEST_F(ChatTest, KeepsLargeSeedsExact) {
  start();

  chat(R"("seed":9007199254740993)");

  EXPECT_EQ(service_->seen()[0].sampling.seed, 9007199254740993U);
}

TEST_F(ChatTest, NamesEachFieldOfTheWrongKind) {
  start();
  const std::vector<FieldCase> cases = {
      {R"("temperature":"1")", "temperature"},
      {R"("stream":1)", "stream"},
      {R"("stop":{})", "stop"},
      {R"("n":1.5)", "n"},
      {R"("model":1)", "model"},
      {R"("logprobs":"x")", "logprobs"},
      {R"("user":1)", "user"},
      {R"("metadata":[])", "metadata"},
      {R"("logit_bias":[1])", "logit_bias"},
      {R"("stop_token_ids":["a"])", "stop_token_ids"},
      {R"("tools":{})", "tools"},
      {R"("response_format":"x")", "response_format"},
      {R"("seed":"x")", "seed"},
      {R"("store":"x")", "store"},
      {R"("messages":"hi")", "messages"},
  };

  for (const FieldCase& field : cases) {
    const HttpResponse response = chat(field.more);
    EXPECT_EQ(response.status, 400) << field.more;
    EXPECT_EQ(json(response).find("error")->string("param"), field.param) << response.body;
    EXPECT_EQ(json(response).find("error")->string("code"), "invalid_type") << response.body;
  }
}

TEST_F(ChatTest, NullMeansAbsent) {
  start();
  std::string more;
  for (const std::string name :
       {"temperature",    "top_p",           "n",         "stop",        "max_tokens",          "max_completion_tokens",
        "logprobs",       "top_logprobs",    "tools",     "tool_choice", "parallel_tool_calls", "stream",
        "stream_options", "response_format", "seed",      "user",        "logit_bias",          "top_k",
        "min_p",          "suffix",          "functions", "audio",       "cache_salt",          "priority"}) {
    more += (more.empty() ? "\"" : ",\"") + name + "\":null";
  }

  const HttpResponse response = chat(more);

  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(content(json(response)), content(json(chat())));
}

TEST_F(ChatTest, RefusesWhatItCannotDo) {
  start();
  const std::vector<FieldCase> cases = {
      {R"("tools":[{"type":"function","function":{"name":"f"}}])", "tools"},
      {R"("guided_whitespace_pattern":" ")", "guided_whitespace_pattern"},
      {R"("modalities":["text","audio"])", "modalities"},
      {R"("audio":{"voice":"x"})", "audio"},
      {R"("use_beam_search":true)", "use_beam_search"},
      {R"("prompt_embeds":"x")", "prompt_embeds"},
      {R"("truncate_prompt_tokens":5)", "truncate_prompt_tokens"},
      {R"("functions":[{"name":"f"}])", "functions"},
      {R"("kv_transfer_params":{"a":1})", "kv_transfer_params"},
      {R"("echo":true)", "echo"},
      {R"("messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x"}}]}])",
       "messages[0].content[0].type"},
  };

  for (const FieldCase& field : cases) expect_error(chat(field.more), 400, field.param, "unsupported_parameter");
  for (const std::string more : {R"("tools":[])", R"("response_format":{"type":"text"})", R"("modalities":["text"])",
                                 R"("bad_words":[])", R"("use_beam_search":false)", R"("length_penalty":1.0)"}) {
    EXPECT_EQ(chat(more).status, 200) << more;
  }
}

TEST_F(ChatTest, S30FetchesNothingForARequest) {
  start();

  expect_error(
      chat(R"("messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}]}])"),
      400, "messages[0].content[0].type", "unsupported_parameter");
}

TEST_F(ChatTest, S11ATemplateOutOfItsBudgetIsARefusal) {
  template_ = "{% for i in range(100000) %}{% for k in range(100000) %}{% endfor %}{% endfor %}";
  start();

  expect_error(chat(), 400, "messages", "invalid_value");
  EXPECT_EQ(complete().status, 200);
}

TEST_F(ChatTest, TakesTheRequestIdOfTheBody) {
  start();

  EXPECT_EQ(header(chat(R"("request_id":"mine")"), "x-request-id"), "mine");
  EXPECT_EQ(header(chat(R"("request_id":"mine")", {{"X-Request-Id", "first"}}), "x-request-id"), "first");
}

TEST_F(ChatTest, NamesUnknownFields) {
  start();

  const HttpResponse response = chat(R"("temprature":1,"x y\n":2)");

  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(header(response, "x-unknown-fields"), "temprature, xy");
}

TEST_F(ChatTest, RefusesUnknownFieldsWhenStrict) {
  options_.strict_params = true;
  start();

  const HttpResponse response = chat(R"("temprature":1)");

  expect_error(response, 400, "temprature", "unknown_parameter");
  EXPECT_THAT(response.body, HasSubstr("'temperature'"));
  EXPECT_EQ(chat().status, 200);
}

TEST_F(ChatTest, NamesUnknownFieldsInsideOfOthers) {
  start();

  const HttpResponse response = chat(R"("response_format":{"type":"text","tpye":1},"stream_options":null)");

  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(header(response, "x-unknown-fields"), "response_format.tpye");
}

/// Those that are read here and those that become requests of another kind.
class UnknownFields : public ServerTest, public ::testing::WithParamInterface<std::pair<const char*, const char*>> {};

TEST_P(UnknownFields, AreNamedOrRefused) {
  start();
  const HttpResponse response = post(GetParam().first, GetParam().second);

  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(header(response, "x-unknown-fields"), "temprature");
}

TEST_P(UnknownFields, AreRefusedWhenStrict) {
  options_.strict_params = true;
  start();
  const HttpResponse response = post(GetParam().first, GetParam().second);

  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr("'temprature'"));
}

INSTANTIATE_TEST_SUITE_P(
    Routes, UnknownFields,
    ::testing::Values(
        std::pair("/v1/messages",
                  R"({"max_tokens":3,"temprature":1,"metadata":{},"messages":[{"role":"user","content":"a"}]})"),
        std::pair("/v1/messages/count_tokens", R"({"temprature":1,"messages":[{"role":"user","content":"a"}]})"),
        std::pair("/tokenize", R"({"temprature":1,"prompt":"a"})"),
        std::pair("/tokenize", R"({"temprature":1,"content":"a"})"),
        std::pair("/tokenize", R"({"temprature":1,"messages":[{"role":"user","content":"a"}]})"),
        std::pair("/detokenize", R"({"temprature":1,"tokens":[97]})"),
        std::pair("/apply-template", R"({"temprature":1,"messages":[{"role":"user","content":"a"}]})")));

TEST_F(ChatTest, ToolsOfTheVendorAreNamedOrRefused) {
  const std::string body =
      R"({"max_tokens":3,"messages":[{"role":"user","content":"a"}],"tools":[{"type":"web_search_20250305","name":"w"}]})";
  start();
  EXPECT_EQ(header(post("/v1/messages", body), "x-unknown-fields"), "tools.0.type=web_search_20250305");

  options_.strict_params = true;
  start();
  EXPECT_EQ(post("/v1/messages", body).status, 400);
}

TEST_F(ChatTest, MessagesCannotDemandToolsThatAreNotThere) {
  start();
  const auto ask = [&](const std::string& choice) {
    return post("/v1/messages",
                R"({"max_tokens":3,"messages":[{"role":"user","content":"a"}],"tool_choice":{"type":")" + choice +
                    "\"}}")
        .status;
  };

  EXPECT_EQ(ask("any"), 400);
  EXPECT_EQ(ask("auto"), 200);
  EXPECT_EQ(ask("none"), 200);
}

TEST_F(ChatTest, R131AdaptersAreRefused) {
  start();

  expect_error(post("/v1/load_lora_adapter", "{}"), 400, "lora_name", "unsupported_parameter");
  expect_error(post("/v1/unload_lora_adapter", "{}"), 400, "lora_name", "unsupported_parameter");
}

TEST_F(ChatTest, RefusesBadMessages) {
  start();
  const auto send = [&](const std::string& messages) {
    return post("/v1/chat/completions", R"({"messages":)" + messages + "}");
  };

  expect_error(post("/v1/chat/completions", "{}"), 400, "messages", "missing_required_parameter");
  expect_error(send("[]"), 400, "messages", "invalid_value");
  expect_error(send("[1]"), 400, "messages[0]", "invalid_type");
  expect_error(send(R"([{"content":"x"}])"), 400, "messages[0].role", "missing_required_parameter");
  expect_error(send(R"([{"role":"king","content":"x"}])"), 400, "messages[0].role", "invalid_value");
  expect_error(send(R"([{"role":"user"}])"), 400, "messages[0].content", "missing_required_parameter");
  expect_error(send(R"([{"role":"user","content":[]}])"), 400, "messages[0].content", "invalid_value");
  expect_error(send(R"([{"role":"user","content":5}])"), 400, "messages[0].content", "invalid_type");
  expect_error(chat(R"("add_generation_prompt":true,"continue_final_message":true)"), 400, "continue_final_message",
               "invalid_value");
  expect_error(chat(R"("tool_choice":"required")"), 400, "tool_choice", "invalid_value");
}

TEST_F(ChatTest, RefusesAnUnknownModel) {
  start();

  const HttpResponse response =
      post("/v1/chat/completions", R"({"model":"other","messages":[{"role":"user","content":"a"}]})");

  expect_error(response, 404, "model", "model_not_found");
  EXPECT_THAT(response.body, HasSubstr("org/model"));
  EXPECT_THAT(response.body, Not(HasSubstr("Did you mean")));
}

TEST_F(ChatTest, NamesTheNearestModel) {
  options_.model_names = {"org/Llama-3-8B", "other/Qwen3-0.6B"};
  start();
  const auto error_for = [&](const std::string& name) {
    return post("/v1/completions", R"({"prompt":"a","model":")" + name + "\"}").body;
  };

  for (const char* name : {"llama-3-8b", "Llama-3-8B:Q4_K_M", "elsewhere/Llama-3-8B.gguf", "org/Llama-3-9B"})
    EXPECT_THAT(error_for(name), HasSubstr("Did you mean `org/Llama-3-8B`?")) << name;
  EXPECT_THAT(error_for("qwen3-0.6b"), HasSubstr("Did you mean `other/Qwen3-0.6B`?"));
  EXPECT_THAT(error_for("gpt-4o"), Not(HasSubstr("Did you mean")));
}

TEST_F(ChatTest, FillsTheContextAndNotMore) {
  start();
  const int64_t used = usage(json(chat()), "prompt_tokens");
  const auto left = [&](int64_t extra) { return R"("max_tokens":)" + std::to_string(200 - used + extra); };

  EXPECT_EQ(chat(left(0)).status, 200);
  const HttpResponse over = chat(left(1));

  expect_error(over, 400, "messages", "context_length_exceeded");
  EXPECT_THAT(over.body, HasSubstr("maximum context length is 200 tokens"));
  EXPECT_THAT(over.body, HasSubstr(std::to_string(used)));
  EXPECT_THAT(over.body, HasSubstr("ask for at most " + std::to_string(200 - used) + " with max_tokens"));
  EXPECT_THAT(chat(R"("max_completion_tokens":900)").body, HasSubstr(" with max_completion_tokens."));
  EXPECT_EQ(service_->seen()[0].max_tokens, 200 - used);
}

TEST_F(ChatTest, RefusesHugePromptsBeforeTokenizing) {
  start();

  const HttpResponse response = post("/v1/completions", R"({"prompt":")" + std::string(4 << 20, 'a') + "\"}");

  expect_error(response, 400, "prompt", "context_length_exceeded");
  EXPECT_THAT(response.body, HasSubstr("at least"));
}

}  // namespace
}  // namespace quern
