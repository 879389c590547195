// The Responses API over the loopback interface, answered by a scripted service: fields, items, events, the store.
#include "server/server_fixture.h"

namespace quern {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kTools =
    R"("tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}])";

/// With tools and thinking, as Hermes and Qwen have them.
constexpr const char* kToolTemplate =
    "{{ bos_token }}{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}[{{ m.role }}]"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
    "{% for call in m.tool_calls or [] %}<tool_call>{{ {'name': call.function.name, 'arguments': "
    "call.function.arguments} | tojson }}</tool_call>{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";

class ResponsesTest : public ServerTest {
 protected:
  void start_with_tools() {
    template_ = kToolTemplate;
    options_.max_model_len = 2000;
    auto format = ReplyFormat::make("hermes", "qwen3", template_, *tokenizer_);
    ASSERT_TRUE(format.ok()) << format.error().message;
    options_.reply_format = std::move(format).value();
    start();
  }
  static std::string body_of(const std::string& more = "") {
    return R"({"model":"alias")" + (more.find("\"input\"") == std::string::npos ? R"(,"input":"hi")" : std::string()) +
           (more.empty() ? "" : "," + more) + "}";
  }
  HttpResponse respond(const std::string& more = "", HttpHeaders headers = {}) {
    return post("/v1/responses", body_of(more), std::move(headers));
  }
  StreamedAnswer stream_response(const std::string& more = "") {
    return stream("/v1/responses", body_of(R"("stream":true)" + (more.empty() ? "" : "," + more)));
  }
  static std::vector<std::string> types(const StreamedAnswer& answer) {
    std::vector<std::string> names;
    for (const Json& event : answer.chunks) {
      const std::string type = event.string("type").value_or("?").substr(9);  // without "response."
      if (names.empty() || names.back() != type) names.push_back(type);
    }
    return names;
  }
  /// Without what differs between two answers to the same request.
  static Json comparable(Json object) {
    for (const char* name : {"id", "created_at", "completed_at"}) object.set(name, nullptr);
    for (Json& item : const_cast<Json*>(object.find("output"))->items()) {
      item.set("id", nullptr);
      if (item.has("call_id")) item.set("call_id", nullptr);
    }
    return object;
  }
  static const Json& output(const Json& object, size_t index = 0) { return object.find("output")->items().at(index); }
};

TEST_F(ResponsesTest, WhatCannotBeDoneIsSaidInOneSentence) {
  start();
  const std::tuple<std::string, std::string> cases[] = {
      {R"("truncation":"auto")", "leaves nothing of a conversation out"},
      {R"("background":true)", "every response is made while its client waits"},
      {R"("conversation":{"id":"conv_1"})", "previous_response_id"},
  };
  for (const auto& [more, says] : cases) {
    const HttpResponse answer = respond(more);
    EXPECT_EQ(answer.status, 400);
    EXPECT_NE(answer.body.find(says), std::string::npos) << answer.body;
  }
  EXPECT_EQ(respond(R"("background":false,"conversation":null,"truncation":"disabled")").status, 200);
}

TEST_F(ResponsesTest, AnswersWithAllMembers) {
  start();

  const Json object = json(respond(R"("instructions":"be","metadata":{"k":"v"},"temperature":0.5)"));

  for (const char* name : {"id",
                           "object",
                           "created_at",
                           "completed_at",
                           "status",
                           "incomplete_details",
                           "model",
                           "instructions",
                           "output",
                           "error",
                           "tools",
                           "previous_response_id",
                           "tool_choice",
                           "truncation",
                           "parallel_tool_calls",
                           "text",
                           "top_p",
                           "presence_penalty",
                           "temperature",
                           "frequency_penalty",
                           "top_logprobs",
                           "reasoning",
                           "usage",
                           "max_output_tokens",
                           "store",
                           "max_tool_calls",
                           "background",
                           "service_tier",
                           "metadata",
                           "safety_identifier",
                           "user",
                           "prompt_cache_key"})
    EXPECT_TRUE(object.has(name)) << name;
  EXPECT_THAT(object.string("id").value(), StartsWith("resp_"));
  EXPECT_EQ(object.string("status"), "completed");
  EXPECT_EQ(object.number("temperature"), 0.5);
  EXPECT_EQ(object.find("metadata")->string("k"), "v");
  const Json& message = output(object);
  EXPECT_EQ(message.string("type"), "message");
  EXPECT_EQ(message.find("content")->items().at(0).string("text"), "hello");
  const Json& usage = *object.find("usage");
  EXPECT_EQ(usage.integer("output_tokens"), 6);
  EXPECT_EQ(usage.find("input_tokens_details")->integer("cached_tokens"), 1);
  EXPECT_EQ(usage.integer("total_tokens"), *usage.integer("input_tokens") + 6);
  EXPECT_EQ(seen_prompt(), "<s>[system]be[user]hi[assistant]");
}

TEST_F(ResponsesTest, StreamsTheSameAnswer) {
  script("h\xC3\xA9llo \xF0\x9F\x98\x80!");
  start();

  const Json whole = json(respond());
  const StreamedAnswer streamed = stream_response();

  EXPECT_TRUE(streamed.done);
  EXPECT_THAT(types(streamed), ::testing::ElementsAre("created", "in_progress", "output_item.added",
                                                      "content_part.added", "output_text.delta", "output_text.done",
                                                      "content_part.done", "output_item.done", "completed"));
  std::string text;
  for (size_t i = 0; i < streamed.chunks.size(); ++i) {
    EXPECT_EQ(streamed.chunks[i].integer("sequence_number"), static_cast<int64_t>(i));
    text += streamed.chunks[i].string("delta").value_or("");
  }
  EXPECT_EQ(text, output(whole).find("content")->items().at(0).string("text"));
  EXPECT_EQ(comparable(*streamed.chunks.back().find("response")), comparable(whole));
}

TEST_F(ResponsesTest, ReasoningAndCallsAreItems) {
  script("<think>Hm.</think>Look: <tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}}</tool_call>");
  start_with_tools();

  const Json whole = json(respond(kTools));
  const StreamedAnswer streamed = stream_response(kTools);

  ASSERT_EQ(whole.find("output")->items().size(), 3U) << whole.dump();
  EXPECT_EQ(output(whole, 0).find("content")->items().at(0).string("text"), "Hm.");
  EXPECT_EQ(output(whole, 1).string("type"), "message");
  EXPECT_EQ(output(whole, 2).string("name"), "f");
  EXPECT_EQ(Json::parse(*output(whole, 2).string("arguments")).value(), Json::parse(R"({"a":1})").value());
  EXPECT_GT(whole.find("usage")->find("output_tokens_details")->integer("reasoning_tokens"), 0);
  EXPECT_EQ(comparable(*streamed.chunks.back().find("response")), comparable(whole));
  EXPECT_THAT(types(streamed),
              ::testing::IsSupersetOf({"reasoning_text.delta", "reasoning_text.done", "function_call_arguments.delta",
                                       "function_call_arguments.done"}));
}

TEST_F(ResponsesTest, ACutAnswerIsIncomplete) {
  start();

  const Json whole = json(respond(R"("max_output_tokens":2)"));
  const StreamedAnswer streamed = stream_response(R"("max_output_tokens":2)");

  EXPECT_EQ(whole.string("status"), "incomplete");
  EXPECT_EQ(whole.find("incomplete_details")->string("reason"), "max_output_tokens");
  EXPECT_EQ(output(whole).string("status"), "incomplete");
  EXPECT_EQ(streamed.chunks.back().string("type"), "response.incomplete");
}

TEST_F(ResponsesTest, AnEmptyAnswerHasAMessage) {
  script("");
  start();

  const Json whole = json(respond());

  ASSERT_EQ(whole.find("output")->items().size(), 1U);
  EXPECT_EQ(output(whole).find("content")->items().at(0).string("text"), "");
}

TEST_F(ResponsesTest, ItemsBecomeMessages) {
  start_with_tools();

  const HttpResponse response = respond(std::string(kTools) + R"(,"tool_choice":"none","instructions":"one","input":[
    {"role":"developer","content":"two"},
    {"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},
    {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
    {"type":"message","role":"assistant","content":[{"type":"output_text","text":"look","annotations":[]}]},
    {"type":"function_call","call_id":"c1","name":"f","arguments":"{\"a\":1}"},
    {"type":"function_call_output","call_id":"c1","output":"5"},
    {"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"6"}]}])");

  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(seen_prompt(),
            "<s>[system]one\n\ntwo[user]a\nb[assistant]<think>hm</think>look<tool_call>{\"name\": \"f\", "
            "\"arguments\": {\"a\": 1}}</tool_call>[tool]5[tool]6[assistant]");
}

TEST_F(ResponsesTest, RefusesByTheNameOfTheField) {
  options_.max_model_len = 60;
  start();
  const std::vector<std::array<std::string, 3>> cases = {
      {R"("input":null)", "input", "missing_required_parameter"},
      {R"("input":[])", "input", "invalid_value"},
      {R"("input":5)", "input", "invalid_type"},
      {R"("input":[{"role":"king","content":"x"}])", "input[0].role", "invalid_value"},
      {R"("input":[{"role":"user"}])", "input[0].content", "missing_required_parameter"},
      {R"("input":[{"role":"user","content":[{"type":"input_image","image_url":"x"}]}])", "input[0].content[0].type",
       "unsupported_parameter"},
      {R"("input":[{"type":"item_reference","id":"x"}])", "input[0].type", "unsupported_parameter"},
      {R"("input":[{"type":"function_call","call_id":"x","name":"f"}])", "input[0].arguments",
       "missing_required_parameter"},
      {R"("input":[{"type":"function_call_output","call_id":"x"}])", "input[0].output", "missing_required_parameter"},
      {R"("input":")" + std::string(500, 'x') + "\"", "input", "context_length_exceeded"},
      {R"("model":"other")", "model", "model_not_found"},
      {R"("max_output_tokens":0)", "max_output_tokens", "integer_below_min_value"},
      {R"("max_output_tokens":1000)", "input", "context_length_exceeded"},
      {R"("temperature":3)", "temperature", "decimal_above_max_value"},
      {R"("stream":1)", "stream", "invalid_type"},
      {R"("truncation":"auto")", "truncation", "unsupported_parameter"},
      {R"("background":true)", "background", "unsupported_parameter"},
      {R"("conversation":"conv_1")", "conversation", "unsupported_parameter"},
      {R"("prompt":{"id":"p"})", "prompt", "unsupported_parameter"},
      {R"("include":["file_search_call.results"])", "include", "unsupported_parameter"},
      {R"("reasoning":{"effort":"much"})", "reasoning.effort", "invalid_value"},
      {R"("reasoning":{"summary":"detailed"})", "reasoning.summary", "unsupported_parameter"},
      {R"("text":{"format":{"type":"xml"}})", "text.format.type", "invalid_value"},
      {R"("text":{"format":{"type":"json_schema","schema":{}}})", "text.format.name", "missing_required_parameter"},
      {R"("text":{"format":{"type":"json_schema","name":"a b","schema":{}}})", "text.format.name", "invalid_value"},
      {R"("text":{"format":{"type":"json_schema","name":"a","strict":true,"schema":{"type":"x"}}})",
       "text.format.schema", "invalid_value"},
      {R"("metadata":{"a":5})", "metadata", "invalid_value"},
      {R"("previous_response_id":"resp_0")", "previous_response_id", "previous_response_not_found"},
      {R"("tools":[{"type":"function"}])", "tools[0].name", "missing_required_parameter"},
      {R"("tool_choice":{"type":"web_search"})", "tool_choice.type", "unsupported_parameter"},
      {R"("tool_choice":"required")", "tool_choice", "invalid_value"},
  };
  for (const auto& [more, param, code] : cases) {
    SCOPED_TRACE(more);
    expect_error(respond(more), more.find("other") == std::string::npos ? 400 : 404, param, code);
  }
  EXPECT_THAT(respond(R"("max_output_tokens":1000)").body, HasSubstr(" with max_output_tokens."));
}

TEST_F(ResponsesTest, ForeignToolsArePassedOverOrRefused) {
  script("well");
  start_with_tools();

  const HttpResponse response =
      respond(R"("tools":[{"type":"web_search"},{"type":"function","name":"f"},{"type":"custom","name":"p"}])");

  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_THAT(header(response, "x-unknown-fields"), HasSubstr("tools[0].type=web_search"));
  EXPECT_EQ(json(response).find("tools")->items().size(), 1U);
  EXPECT_THAT(seen_prompt(), ::testing::Not(HasSubstr("web_search")));
}

TEST_F(ResponsesTest, StrictServersRefuseForeignToolsAndUnknownFields) {
  options_.strict_params = true;
  start();

  expect_error(respond(R"("tools":[{"type":"web_search"}])"), 400, "tools[0].type", "unsupported_parameter");
  expect_error(respond(R"("temprature":1)"), 400, "temprature", "unknown_parameter");
}

TEST_F(ResponsesTest, FormatsAndChoicesReachTheEngine) {
  script("{}");
  start_with_tools();

  for (const char* more : {R"("text":{"format":{"type":"json_object"}})",
                           R"("text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"}}})",
                           R"("structured_outputs":{"regex":"[{][}]"})"}) {
    EXPECT_EQ(respond(more).status, 200) << more;
    EXPECT_NE(service_->seen().back().mask, nullptr) << more;
  }
  const size_t before = service_->seen().size();
  for (const char* choice :
       {R"("required")", R"({"type":"function","name":"f"})",
        R"({"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"f"}]})"}) {
    EXPECT_EQ(respond(std::string(kTools) + ",\"tool_choice\":" + choice).status, 200) << choice;
    EXPECT_NE(service_->seen().back().mask, nullptr) << choice;
  }
  EXPECT_EQ(service_->seen().size(), before + 3);
}

TEST_F(ResponsesTest, LogprobsBelongToTheText) {
  script("<think>Hm.</think>\n\nHi <b");
  start_with_tools();
  const std::string more = R"("include":["message.output_text.logprobs"],"top_logprobs":1)";

  const Json whole = json(respond(more));
  const StreamedAnswer streamed = stream_response(more);

  const Json& part = output(whole, 1).find("content")->items().at(0);
  std::string text;
  for (const Json& token : part.find("logprobs")->items()) {
    text += token.string("token").value_or("?");
    EXPECT_EQ(token.find("top_logprobs")->items().size(), 2U);  // as many as the scripted engine gives
  }
  EXPECT_EQ(text, part.string("text"));
  EXPECT_EQ(comparable(*streamed.chunks.back().find("response")), comparable(whole));
}

TEST_F(ResponsesTest, GoesOnWithAnEarlierResponse) {
  start();
  const std::string first = *json(respond(R"("instructions":"be")")).string("id");

  const Json second = json(respond(R"("input":"more","previous_response_id":")" + first + "\""));

  EXPECT_EQ(seen_prompt(1), "<s>[user]hi[assistant]hello[user]more[assistant]");
  EXPECT_EQ(second.string("previous_response_id"), first);
  const Json list = json(get("/v1/responses/" + *second.string("id") + "/input_items?order=asc"));
  ASSERT_EQ(list.find("data")->items().size(), 3U) << list.dump();
  EXPECT_EQ(list.find("data")->items().at(1).string("role"), "assistant");
  const Json page = json(get("/v1/responses/" + *second.string("id") + "/input_items?limit=1"));
  EXPECT_EQ(page.find("data")->items().at(0), list.find("data")->items().at(2));
  EXPECT_EQ(page.boolean("has_more"), true);
}

TEST_F(ResponsesTest, StoredOnesCanBeReadAndDeleted) {
  start();
  const Json object = json(respond());
  const std::string path = "/v1/responses/" + *object.string("id");

  EXPECT_EQ(json(get(path)), object);
  expect_error(get(path + "?stream=true"), 400, "stream", "unsupported_parameter");
  expect_error(post(path + "/cancel", ""), 400, "", "invalid_value");
  EXPECT_EQ(json(call("DELETE", path)).boolean("deleted"), true);
  for (const HttpResponse& response :
       {get(path), call("DELETE", path), post(path + "/cancel", ""), get(path + "/input_items")})
    expect_error(response, 404, "", "");
  EXPECT_EQ(get("/v1/responses").status, 405);
  EXPECT_EQ(get(path + "/other").status, 404);
}

TEST_F(ResponsesTest, StreamedOnesAreStoredToo) {
  start();

  const StreamedAnswer streamed = stream_response();

  const Json& object = *streamed.chunks.back().find("response");
  EXPECT_EQ(json(get("/v1/responses/" + *object.string("id"))), object);
}

TEST_F(ResponsesTest, NothingIsStoredThatShouldNotBe) {
  start();

  const Json object = json(respond(R"("store":false)"));

  EXPECT_EQ(object.boolean("store"), false);
  expect_error(get("/v1/responses/" + *object.string("id")), 404, "", "");
}

TEST_F(ResponsesTest, KeysSeeOnlyTheirOwn) {
  options_.api_keys = keys_of({"one", "two"});
  start();
  const HttpHeaders one = {{"Authorization", "Bearer one"}};
  const HttpHeaders two = {{"x-api-key", "two"}};
  const std::string id = *json(respond("", one)).string("id");

  EXPECT_EQ(get("/v1/responses/" + id, one).status, 200);
  expect_error(get("/v1/responses/" + id, two), 404, "", "");
  expect_error(respond(R"("previous_response_id":")" + id + "\"", two), 400, "previous_response_id",
               "previous_response_not_found");
  EXPECT_EQ(respond(R"("previous_response_id":")" + id + "\"", one).status, 200);
  EXPECT_EQ(get("/v1/responses/" + id).status, 401);
}

TEST_F(ResponsesTest, CountsTheTokensOfAPrompt) {
  start();

  const Json counted = json(post("/v1/responses/input_tokens", body_of(R"("instructions":"be")")));
  const Json object = json(respond(R"("instructions":"be")"));

  EXPECT_EQ(counted.string("object"), "response.input_tokens");
  EXPECT_EQ(header(post("/v1/responses/input_tokens", body_of(R"("colour":1)")), "x-unknown-fields"), "colour");
  EXPECT_EQ(counted.integer("input_tokens"), object.find("usage")->integer("input_tokens"));
}

TEST_F(ResponsesTest, AFailureInTheMiddleIsTold) {
  start();
  service_->finish_with(FinishReason::error, "broken");

  const StreamedAnswer streamed = stream_response();

  EXPECT_TRUE(streamed.done);
  const size_t count = streamed.chunks.size();
  ASSERT_GE(count, 4U);
  EXPECT_EQ(streamed.chunks.front().string("type"), "response.created");
  EXPECT_EQ(streamed.chunks[count - 2].string("type"), "error");
  EXPECT_EQ(streamed.chunks[count - 2].string("code"), "server_error");
  EXPECT_NE(streamed.chunks[count - 2].find("error"), nullptr);
  const Json& failed = streamed.chunks.back();
  EXPECT_EQ(failed.string("type"), "response.failed");
  EXPECT_EQ(failed.find("response")->string("status"), "failed");
  EXPECT_EQ(failed.find("response")->find("error")->string("code"), "server_error");
}

}  // namespace
}  // namespace quern
