// The server over the loopback interface: what belongs to HTTP, keys, models, health and overload.
#include <future>
#include <set>
#include <thread>

#include "base/guarded.h"
#include "server/server_fixture.h"

namespace quern {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using namespace std::chrono_literals;

TEST_F(ServerTest, ListsEveryServedName) {
  start();

  const Json list = json(get("/v1/models"));

  EXPECT_EQ(list.string("object"), "list");
  ASSERT_EQ(list.find("data")->items().size(), 2U);
  const Json& first = list.find("data")->items()[0];
  EXPECT_EQ(first.string("id"), "org/model");
  EXPECT_EQ(first.string("object"), "model");
  EXPECT_TRUE(first.integer("created"));
  EXPECT_TRUE(first.string("owned_by"));
  EXPECT_EQ(first.integer("max_model_len"), 200);
}

TEST_F(ServerTest, FindsAModelWithASlashInItsName) {
  start();

  EXPECT_EQ(json(get("/v1/models/org/model")).string("id"), "org/model");
  EXPECT_EQ(json(get("/v1/models/org%2Fmodel")).string("id"), "org/model");
  expect_error(get("/v1/models/other"), 404, "model", "model_not_found");
}

TEST_F(ServerTest, ToleratesDoubledAndFinalSlashes) {
  start();

  EXPECT_EQ(get("/v1//models").body, get("/v1/models").body);
  EXPECT_EQ(get("/v1/models/").body, get("/v1/models").body);
  EXPECT_EQ(get("/v1/models?x=1").body, get("/v1/models").body);
}

TEST_F(ServerTest, TellsItsVersionAndItsName) {
  start();

  EXPECT_EQ(json(get("/version")).string("version"), "1.2.3");
  EXPECT_THAT(get("/").body, HasSubstr("Quern 1.2.3"));
  const HttpResponse head = call("HEAD", "/");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, "");
}

TEST_F(ServerTest, TellsWhichBuildItIs) {
  options_.build = "0123456789ab";
  start();

  EXPECT_EQ(json(get("/version")).string("build"), "0123456789ab");
}

TEST_F(ServerTest, AnswersBelowTheRootOfAProxy) {
  options_.root_path = "/llm";
  options_.api_keys = keys_of({"k"});
  start();
  const HttpHeaders key = {{"Authorization", "Bearer k"}};

  for (const char* path : {"/llm/v1/models", "/v1/models", "/llm/v1/models?x=1"}) {
    EXPECT_EQ(get(path, key).status, 200) << path;
    EXPECT_EQ(get(path).status, 401) << path;
  }
  for (const char* path : {"/llm", "/llm/", "/llm/health"}) EXPECT_EQ(get(path).status, 200) << path;
  EXPECT_EQ(get("/llmv1/models", key).status, 404);
  EXPECT_THAT(get("/llm/openapi.json", key).body, HasSubstr(R"("servers":[{"url":"/llm"}])"));
}

TEST_F(ServerTest, EveryStreamEndsWithUsageWhenTheOperatorSaysSo) {
  options_.always_usage = true;
  start();

  const StreamedAnswer answer = stream_completion(R"("stream_options":{"include_usage":false})");

  EXPECT_NE(answer.chunks.back().find("usage"), nullptr);
  EXPECT_TRUE(answer.chunks.back().find("choices")->items().empty());
}

TEST_F(ServerTest, RefusesBodiesThatAreNoObject) {
  start();

  for (const std::string body : {R"({"model":)", "[]", "\"x\"", "null", "1", "{} {}", "nan", R"({"n":NaN})", "\xff"}) {
    const HttpResponse response = post("/v1/chat/completions", body);
    EXPECT_EQ(response.status, 400) << body;
    EXPECT_THAT(response.body, HasSubstr("JSON")) << body;
  }
  EXPECT_EQ(call("POST", "/v1/chat/completions").status, 400);
  EXPECT_EQ(chat().status, 200);
}

TEST_F(ServerTest, S10RefusesDeepJson) {
  start();

  const HttpResponse response = post("/v1/chat/completions", std::string(10'000, '['));

  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr("nested deeper"));
}

TEST_F(ServerTest, TakesTheLastOfEqualKeys) {
  start();

  EXPECT_EQ(usage(json(chat(R"("max_tokens":3,"max_tokens":2)")), "completion_tokens"), 2);
}

TEST_F(ServerTest, LooksAtTheContentType) {
  start();
  const auto send = [&](const std::string& type) {
    return client_->send({"POST", "/v1/chat/completions", {{"Content-Type", type}}, chat_body(), ""}, 5s).value();
  };

  EXPECT_EQ(send("application/json; charset=utf-8").status, 200);
  EXPECT_EQ(client_->send({"POST", "/v1/chat/completions", {}, chat_body(), ""}, 5s).value().status, 200);
  expect_error(send("text/plain"), 415, "", "");
}

TEST_F(ServerTest, NamesTheMethodsOfARoute) {
  start();

  const HttpResponse response = get("/v1/chat/completions");

  expect_error(response, 405, "", "");
  EXPECT_EQ(header(response, "allow"), "POST, OPTIONS");
  expect_error(get("/v1/nothing"), 404, "", "");
}

TEST_F(ServerTest, EchoesAGoodRequestId) {
  start();

  EXPECT_EQ(header(get("/version", {{"X-Request-Id", "abc-1"}}), "x-request-id"), "abc-1");
  EXPECT_EQ(header(chat("", {{"X-Request-Id", "abc-2"}}), "x-request-id"), "abc-2");
  EXPECT_EQ(header(get("/none", {{"X-Request-Id", "abc-3"}}), "x-request-id"), "abc-3");
  EXPECT_EQ(header(get("/version"), "x-request-id").size(), 32U);
  EXPECT_EQ(header(get("/version", {{"X-Request-Id", std::string(129, 'a')}}), "x-request-id").size(), 32U);
}

TEST_F(ServerTest, AnswersPreflightsWithoutAKey) {
  options_.api_keys = keys_of({"k"});
  start();

  const HttpResponse response =
      call("OPTIONS", "/v1/chat/completions", "",
           {{"Origin", "http://page"}, {"Access-Control-Request-Headers", "authorization, x-stainless-lang"}});

  EXPECT_EQ(response.status, 204);
  EXPECT_EQ(header(response, "access-control-allow-origin"), "*");
  EXPECT_THAT(header(response, "access-control-allow-methods"), HasSubstr("POST"));
  EXPECT_EQ(header(response, "access-control-allow-headers"), "authorization, x-stainless-lang");
}

TEST_F(ServerTest, S25EveryRouteNeedsTheKeyButTheOpenOnes) {
  options_.api_keys = keys_of({"secret-1", "secret-2"});
  start();

  for (const std::string path : {"/health", "/ping", "/version", "/", "/metrics", "/health/live"})
    EXPECT_EQ(get(path).status, 200) << path;
  for (const std::string path : {"/v1/models", "/v1/models/alias", "/nothing"})
    EXPECT_EQ(get(path).status, 401) << path;
  for (const std::string path : {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"})
    EXPECT_EQ(post(path, "{}").status, 401) << path;
}

TEST_F(ServerTest, S27TakesEachOfTheKeys) {
  options_.api_keys = keys_of({"secret-1", "secret-2"});
  start();

  EXPECT_EQ(get("/v1/models", {{"Authorization", "Bearer secret-1"}}).status, 200);
  EXPECT_EQ(get("/v1/models", {{"Authorization", "bearer secret-2"}}).status, 200);
  EXPECT_EQ(get("/v1/models", {{"x-api-key", "secret-1"}}).status, 200);
  const HttpResponse wrong = get("/v1/models", {{"Authorization", "Bearer secret-3"}});
  expect_error(wrong, 401, "", "invalid_api_key");
  EXPECT_THAT(wrong.body, Not(HasSubstr("secret-3")));
  EXPECT_EQ(header(wrong, "www-authenticate"), "Bearer");
  expect_error(get("/v1/models", {{"Authorization", "Bearer secret"}}), 401, "", "invalid_api_key");
}

TEST_F(ServerTest, ProtectsMetricsWhenAsked) {
  options_.api_keys = keys_of({"k"});
  options_.metrics_auth = true;
  start();

  EXPECT_EQ(get("/metrics").status, 401);
  EXPECT_EQ(get("/metrics", {{"Authorization", "Bearer k"}}).status, 200);
}

TEST_F(ServerTest, S26DecidesOnTheParsedTargetOnly) {
  options_.api_keys = keys_of({"k"});
  start();

  for (const std::string target :
       {"//v1/models", "/health/../v1/models", "/%761/models", "/v1/models?x=/health", "http://h/health/x"}) {
    EXPECT_EQ(get(target).status, 401) << target;
  }
}

TEST_F(ServerTest, S28RefusesANameThatIsNotThisMachine) {
  start();
  EXPECT_EQ(get("/v1/models", {{"host", "localhost:80"}}).status, 200);
  expect_error(get("/v1/models", {{"host", "evil.example:80"}}), 403, "", "");
}

TEST_F(ServerTest, S32TenantsDoNotSharePrefixes) {
  options_.api_keys = keys_of({"one", "two"});
  start();

  for (const std::string key : {"one", "two", "one"})
    EXPECT_EQ(chat("", {{"Authorization", "Bearer " + key}}).status, 200);

  const auto seen = service_->seen();
  EXPECT_NE(seen[0].cache_salt, seen[1].cache_salt);
  EXPECT_EQ(seen[0].cache_salt, seen[2].cache_salt);
  EXPECT_NE(seen[0].client, seen[1].client);
}

TEST_F(ServerTest, S31SaltsSeparatePrefixes) {
  start();

  chat();
  chat(R"("cache_salt":"a")");
  chat(R"("cache_salt":"b")");
  expect_error(chat(R"("cache_salt":"")"), 400, "cache_salt", "invalid_value");

  const auto seen = service_->seen();
  EXPECT_EQ(seen[0].cache_salt, 0U);
  EXPECT_NE(seen[1].cache_salt, seen[2].cache_salt);
}

/// Encodes nothing before it may.
class SlowTokenizer final : public ByteTokenizer {
 public:
  Result<std::vector<int32_t>> encode(std::string_view text, const EncodeOptions& options) const override {
    working.try_send(0);
    gate.receive();
    return ByteTokenizer::encode(text, options);
  }
  mutable Channel<int> working;
  mutable Channel<int> gate;
};

TEST_F(ServerTest, S13TextWorkKeepsNobodyWaiting) {
  const auto slow = std::make_shared<SlowTokenizer>();
  tokenizer_ = slow;
  options_.text_threads = 1;
  options_.max_queued_texts = 1;
  start();
  const auto ask = [&] {
    HttpClient other("127.0.0.1", server_->port());
    return other.send({"POST", "/v1/completions", {}, prompt_body(), ""}, 5s).value().status;
  };
  auto working = std::async(std::launch::async, ask);
  slow->working.receive();
  auto first = std::async(std::launch::async, ask);
  auto second = std::async(std::launch::async, ask);

  EXPECT_EQ(get("/health").status, 200);

  // One is being read, one waits, and there is no place for the third.
  while (first.wait_for(1ms) != std::future_status::ready && second.wait_for(1ms) != std::future_status::ready) {
  }
  for (int i = 0; i < 3; ++i) slow->gate.try_send(0);
  EXPECT_EQ(working.get() + first.get() + second.get(), 200 + 200 + 429);
}

/// Its time is in proportion to the text, so small requests may be read where they arrive.
class LinearTokenizer final : public ByteTokenizer {
 public:
  bool is_linear() const override { return true; }
  Result<std::vector<int32_t>> encode_pieces(std::span<const TextPiece> pieces, bool add_special) const override {
    threads.with([](std::set<std::thread::id>& all) { all.insert(std::this_thread::get_id()); });
    return ByteTokenizer::encode_pieces(pieces, add_special);
  }
  mutable Guarded<std::set<std::thread::id>> threads;
};

TEST_F(ServerTest, S13ATemplateThatTakesItsTimeStopsNoOtherConnection) {
  const auto tokenizer = std::make_shared<LinearTokenizer>();
  tokenizer_ = tokenizer;
  template_ = "{% for i in range(9999) %}{% for k in range(n or 0) %}{% endfor %}{% endfor %}x";
  start();

  EXPECT_EQ(chat(R"("chat_template_kwargs":{"n":0})").status, 200);
  auto slow = std::async(std::launch::async, [&] {
    HttpClient other("127.0.0.1", server_->port());
    const std::string body = chat_body(R"("chat_template_kwargs":{"n":9999})");
    return other.send({"POST", "/v1/chat/completions", {}, body, ""}, kPatience).value().status;
  });
  int answered = 0;
  for (; slow.wait_for(0s) != std::future_status::ready; ++answered) EXPECT_EQ(get("/health").status, 200);

  EXPECT_EQ(slow.get(), 400);  // its steps are counted
  EXPECT_GT(answered, 3);
}

TEST_F(ServerTest, SmallRequestsAreReadWhereTheyArriveAndLargeOnesInThePool) {
  const auto tokenizer = std::make_shared<LinearTokenizer>();
  tokenizer_ = tokenizer;
  options_.max_model_len = 20'000;
  options_.text_threads = 1;
  start();
  const auto threads = [&] { return tokenizer->threads.with([](auto& all) { return all.size(); }); };

  for (int i = 0; i < 5; ++i) EXPECT_EQ(chat().status, 200);
  EXPECT_EQ(threads(), 1U);
  const std::string body = R"({"messages":[{"role":"user","content":")" + std::string(5000, 'a') + "\"}]}";
  EXPECT_EQ(post("/v1/chat/completions", body).status, 200);
  EXPECT_EQ(threads(), 2U);
}

TEST_F(ServerTest, SaysTooManyWhenTheQueueIsFull) {
  start();
  service_->limit(0);

  const HttpResponse response = chat(R"("stream":true)");

  expect_error(response, 429, "", "rate_limit_exceeded");
  EXPECT_EQ(header(response, "retry-after"), "1");
  EXPECT_EQ(json(response).find("error")->string("type"), "rate_limit_error");
}

TEST_F(ServerTest, CancelsTheOthersWhenOneChoiceFindsNoPlace) {
  start();
  service_->hold();
  service_->limit(2);

  EXPECT_EQ(chat(R"("n":3)").status, 429);

  EXPECT_TRUE(service_->idle());
  EXPECT_EQ(service_->cancels(), 2);
}

TEST_F(ServerTest, C1CancelsWhenTheClientGoes) {
  start();
  service_->hold();
  for (const std::string more : {R"("stream":true)", R"("stream":false)", R"("n":2)"}) {
    HttpClient leaver("127.0.0.1", server_->port());
    EXPECT_FALSE(leaver.send({"POST", "/v1/chat/completions", {}, chat_body(more), ""}, 50ms).ok());
    EXPECT_TRUE(service_->idle());
  }

  EXPECT_THAT(get("/metrics").body, HasSubstr("quern_streams_open{model_name=\"org/model\",engine=\"0\"} 0\n"));
}

TEST_F(ServerTest, C7HealthFailsWhenWorkStandsStill) {
  options_.watchdog_timeout_s = 0.02;
  start();
  EXPECT_EQ(get("/health").status, 200);
  service_->hold();
  auto answer = std::async(std::launch::async, [&] {
    HttpClient other("127.0.0.1", server_->port());
    return other.send({"POST", "/v1/chat/completions", {}, chat_body(), ""}, 5s).value().status;
  });
  const auto deadline = std::chrono::steady_clock::now() + 5s;
  while (get("/health").status == 200 && std::chrono::steady_clock::now() < deadline) {
  }

  EXPECT_EQ(get("/health").status, 503);
  EXPECT_EQ(get("/health/live").status, 503);

  service_->step(10);
  EXPECT_EQ(answer.get(), 200);
  EXPECT_EQ(get("/health").status, 200);
}

TEST_F(ServerTest, C7HealthFailsWhenTheEngineIsDead) {
  start();
  EngineStats stats;
  stats.dead = true;
  service_->set_stats(stats);

  EXPECT_EQ(get("/health").status, 503);
  EXPECT_EQ(get("/ping").status, 503);
}

TEST_F(ServerTest, C6DrainsRunningAnswersAndRefusesNewOnes) {
  start();
  service_->hold();
  auto answer = std::async(std::launch::async, [&] {
    HttpClient other("127.0.0.1", server_->port());
    return other.send({"POST", "/v1/chat/completions", {}, chat_body(), ""}, 5s).value().body;
  });
  while (service_->stats().running == 0) std::this_thread::yield();

  auto drained = std::async(std::launch::async, [&] { return server_->drain(std::chrono::steady_clock::now() + 5s); });
  while (get("/health").status == 200) std::this_thread::yield();
  const HttpResponse refused = chat();
  EXPECT_EQ(get("/health/live").status, 200);
  service_->step(10);

  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(header(refused, "retry-after"), "");
  EXPECT_EQ(header(refused, "connection"), "close");
  EXPECT_THAT(answer.get(), HasSubstr("hello"));
  EXPECT_TRUE(drained.get());
}

TEST_F(ServerTest, R129StaysOpenForALateBalancer) {
  start();
  const auto now = std::chrono::steady_clock::now();
  auto drained = std::async(std::launch::async, [&] { return server_->drain(now + 5s, now + 300ms); });
  while (get("/health").status == 200) std::this_thread::yield();

  EXPECT_EQ(chat().status, 503);
  EXPECT_TRUE(drained.get());
  EXPECT_GE(std::chrono::steady_clock::now() - now, 300ms);
}

TEST_F(ServerTest, C6EndsTheRestAtTheDeadline) {
  start();
  service_->hold();
  auto answer = std::async(std::launch::async, [&] {
    HttpClient other("127.0.0.1", server_->port());
    std::string text;
    EXPECT_TRUE(other
                    .send({"POST", "/v1/chat/completions", {}, chat_body(R"("stream":true)"), ""}, 5s,
                          [&](std::string_view piece) {
                            text += piece;
                            return true;
                          })
                    .ok());
    return text;
  });
  service_->step();
  while (service_->stats().running == 0) std::this_thread::yield();

  EXPECT_FALSE(server_->drain(std::chrono::steady_clock::now() + 100ms));

  const std::string text = answer.get();
  EXPECT_THAT(text, HasSubstr("data: {\"error\":"));
  EXPECT_THAT(text, Not(HasSubstr("[DONE]")));
  EXPECT_TRUE(service_->idle());
}

TEST_F(ServerTest, GivesUpAtTheDeadline) {
  options_.request_timeout_s = 100;
  start();
  service_->finish_with(FinishReason::deadline);

  expect_error(chat("", {{"X-Request-Timeout-Ms", "1500"}}), 504, "", "timeout");

  const int64_t left_us = service_->seen()[0].deadline_us - now_us();
  EXPECT_LT(left_us, 1'500'001);
  EXPECT_GT(left_us, -5'000'000);
}

TEST_F(ServerTest, S24S33AnEngineErrorEndsOneRequestAndTellsNothing) {
  start();
  service_->finish_with(FinishReason::error, "row 3 at 0x7f00 has NaN");

  const HttpResponse whole = chat();
  const StreamedAnswer streamed = stream_chat();

  expect_error(whole, 500, "", "");
  EXPECT_THAT(whole.body, Not(HasSubstr("0x7f00")));
  ASSERT_FALSE(streamed.chunks.empty());
  EXPECT_TRUE(streamed.chunks.back().has("error"));
  EXPECT_FALSE(streamed.done);
}

TEST_F(ServerTest, PingsWhileThereIsNothingToSay) {
  options_.ping_interval = 2ms;
  start();
  service_->hold();
  std::string text;
  bool stepped = false;

  const auto answer = client_->send({"POST", "/v1/chat/completions", {}, chat_body(R"("stream":true)"), ""}, 5s,
                                    [&](std::string_view piece) {
                                      text += piece;
                                      if (!stepped && text.find(": ping\n\n: ping\n\n") != std::string::npos) {
                                        service_->step(20);
                                        stepped = true;
                                      }
                                      return true;
                                    });

  EXPECT_TRUE(answer.ok());
  EXPECT_THAT(text, StartsWith(": ping\n\n: ping\n\n"));
  EXPECT_THAT(text, HasSubstr("data: [DONE]\n\n"));
}

TEST_F(ServerTest, MayEndUnderLoad) {
  start();
  service_->hold();
  std::vector<std::future<bool>> answers;
  for (int i = 0; i < 8; ++i) {
    answers.push_back(std::async(std::launch::async, [&] {
      HttpClient other("127.0.0.1", server_->port());
      return other.send({"POST", "/v1/chat/completions", {}, chat_body(R"("n":3)"), ""}, 5s).ok();
    }));
  }
  while (service_->stats().running < 24) std::this_thread::yield();

  server_.reset();

  for (auto& answer : answers) EXPECT_FALSE(answer.get());
  EXPECT_TRUE(service_->idle());
}

TEST_F(ServerTest, Q122EachOfManyStreamsGetsItsOwnText) {
  script([](const Request& request) {
    std::string prompt;
    for (const int32_t id : request.prompt) prompt += static_cast<char>(id);
    return "answer " + prompt.substr(1);
  });
  options_.http.shards = 2;
  start();
  std::vector<std::future<std::string>> answers;
  for (int i = 0; i < 64; ++i) {
    answers.push_back(std::async(std::launch::async, [&, i] {
      HttpClient other("127.0.0.1", server_->port());
      std::string text;
      SseReader reader;
      EXPECT_TRUE(other
                      .send({"POST",
                             "/v1/completions",
                             {},
                             fmt::format(R"({{"prompt":"marker {}","stream":true,"max_tokens":100}})", i),
                             ""},
                            10s,
                            [&](std::string_view piece) {
                              for (const std::string& data : reader.add(piece)) {
                                if (data == "[DONE]") continue;
                                const auto chunk = Json::parse(data);
                                text += chunk.value().find("choices")->items()[0].string("text").value_or("");
                              }
                              return true;
                            })
                      .ok());
      return text;
    }));
  }

  for (int i = 0; i < 64; ++i) EXPECT_EQ(answers[static_cast<size_t>(i)].get(), fmt::format("answer marker {}", i));
}

}  // namespace
}  // namespace quern
