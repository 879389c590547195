// Structured output over the loopback interface: what reaches the engine of each way to ask for it, and what is
// refused.
#include <future>

#include "server/server_fixture.h"

namespace quern {
namespace {

class StructuredTest : public ServerTest {
 protected:
  /// The bytes that may come first in the answer of the last request.
  std::string first_bytes() {
    const std::vector<Request> seen = service_->seen();
    if (seen.empty() || !seen.back().mask) return "no mask";
    auto answer = std::make_shared<std::promise<std::optional<TokenMask::Words>>>();
    seen.back().mask->advance({},
                              [answer](std::optional<TokenMask::Words> words) { answer->set_value(std::move(words)); });
    const auto words = answer->get_future().get();
    if (!words) return "no words";
    std::string bytes;
    for (int id = 0; id < 256; ++id) {
      if (((*words)[static_cast<size_t>(id) / 32] >> (id % 32) & 1U) != 0) bytes += static_cast<char>(id);
    }
    return bytes;
  }
};

TEST_F(StructuredTest, MessagesHaveFormats) {
  start();
  const auto ask = [&](const std::string& more) {
    return post("/v1/messages", R"({"max_tokens":3,"messages":[{"role":"user","content":"a"}],)" + more + "}").status;
  };

  EXPECT_EQ(ask(R"("output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"boolean"}}})"),
            200);
  EXPECT_EQ(first_bytes(), "ft");
  EXPECT_EQ(ask(R"("output_format":{"type":"json_schema","schema":{"type":"null"}})"), 200);
  EXPECT_EQ(first_bytes(), "n");
  EXPECT_EQ(ask(R"("output_config":{"effort":"low"})"), 200);
  EXPECT_EQ(first_bytes(), "no mask");
  EXPECT_EQ(ask(R"("output_config":{"format":{"type":"xml"}})"), 400);
  EXPECT_EQ(ask(R"("output_config":{"format":{"type":"json_schema"}})"), 400);
}

TEST_F(StructuredTest, EveryWayToAskMakesAMask) {
  start();
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("response_format":{"type":"json_object"})", "{"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"a","strict":true,"schema":{"type":"boolean"}}})",
       "ft"},
      {R"("response_format":{"type":"json_object","schema":{"type":"null"}})", "n"},
      {R"("response_format":{"type":"structural_tag","format":{"type":"const_string","value":"x"}})", "x"},
      {R"("structured_outputs":{"json":{"enum":[1]}})", "1"},
      {R"("structured_outputs":{"regex":"[ab]c","disable_any_whitespace":true})", "ab"},
      {R"("structured_outputs":{"choice":["yes","no"]})", "ny"},
      {R"("structured_outputs":{"grammar":"root ::= \"q\""})", "q"},
      {R"("structured_outputs":{"json_object":true})", "{"},
      {R"("structured_outputs":{"structural_tag":"{\"format\":{\"type\":\"const_string\",\"value\":\"x\"}}"})", "x"},
      {R"("guided_json":"{\"type\":\"array\"}")", "["},
      {R"("guided_regex":"z+","guided_decoding_backend":"auto")", "z"},
      {R"("guided_choice":["one"])", "o"},
      {R"("guided_grammar":"start: \"w\"")", "w"},
      {R"("guided_json_object":true)", "{"},
      {R"("json_schema":{"const":"k"})", "\""},
      {R"("grammar":"root ::= [0-2]")", "012"},
      {R"("regex":"m?n")", "mn"},
      {R"("ebnf":"root ::= \"e\"")", "e"},
  };
  for (const auto& [more, bytes] : cases) {
    const HttpResponse response = chat(more);
    EXPECT_EQ(response.status, 200) << more << response.body;
    EXPECT_EQ(first_bytes(), bytes) << more;
    EXPECT_EQ(complete(more).status, 200) << more;
  }
}

TEST_F(StructuredTest, EachChoiceHasAMatcherOfItsOwn) {
  start();
  ASSERT_EQ(chat(R"("n":2,"guided_choice":["ab"])").status, 200);
  const std::vector<Request> seen = service_->seen();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_NE(seen[0].mask, nullptr);
  EXPECT_NE(seen[0].mask, seen[1].mask);
  ASSERT_EQ(chat(R"("response_format":{"type":"text"},"structured_outputs":null)").status, 200);
  EXPECT_EQ(service_->seen().back().mask, nullptr);
}

TEST_F(StructuredTest, S16WhatIsWrongIsSaidBeforeAnythingIsQueued) {
  start();
  const std::string schema = "response_format.json_schema.schema";
  const auto format = [](const std::string& text) {
    return R"("response_format":{"type":"json_schema","json_schema":{"name":"a","schema":)" + text + "}}";
  };
  expect_error(chat(format(R"({"not":{}})")), 400, schema, "invalid_value");
  expect_error(chat(format("5")), 400, schema, "invalid_type");
  expect_error(chat(R"("response_format":{"type":"json_schema","json_schema":{"name":"","schema":{}}})"), 400,
               "response_format.json_schema.name", "invalid_value");
  expect_error(chat(R"("response_format":{"type":"json_schema"})"), 400, "response_format.json_schema",
               "missing_required_parameter");
  expect_error(chat(R"("guided_regex":"(")"), 400, "guided_regex", "invalid_value");
  expect_error(chat(R"("guided_regex":"")"), 400, "guided_regex", "invalid_value");
  expect_error(chat(R"("guided_choice":[])"), 400, "guided_choice", "invalid_value");
  expect_error(chat(R"("guided_choice":[1])"), 400, "guided_choice", "invalid_type");
  expect_error(chat(R"("guided_regex":"a","regex":"b")"), 400, "regex", "invalid_value");
  expect_error(chat(R"("guided_regex":"a","min_tokens":2)"), 400, "min_tokens", "invalid_value");
  expect_error(chat(R"("guided_regex":"a","ignore_eos":true)"), 400, "ignore_eos", "invalid_value");
  expect_error(chat(R"("structured_outputs":{})"), 400, "structured_outputs", "invalid_value");
  expect_error(chat(R"("structured_outputs":{"regex":"a","whitespace_pattern":" "})"), 400,
               "structured_outputs.whitespace_pattern", "unsupported_parameter");
  EXPECT_TRUE(service_->seen().empty());
}

TEST_F(StructuredTest, AMaskThatIsAskedForTooLateFails) {
  start();
  ASSERT_EQ(chat(R"("guided_regex":"a")").status, 200);
  ASSERT_EQ(first_bytes(), "a");
  server_.reset();
  EXPECT_EQ(first_bytes(), "no words");
}

}  // namespace
}  // namespace quern
