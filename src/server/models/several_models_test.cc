// Several models behind one port: which one answers, what is listed and counted, and what ends when.
#include <future>
#include <thread>

#include "server/models/scripted_host.h"
#include "server/server_fixture.h"

namespace quern {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

class SeveralModelsTest : public ServerTest {
 protected:
  void start_models(const std::vector<std::string>& names) {
    std::vector<ModelCard> cards;
    for (const std::string& name : names) cards.push_back(ScriptedHost::card(name));
    options_.http.port = 0;
    server_ = std::make_unique<Server>(options_, keeping_, std::move(cards), host_);
    ASSERT_TRUE(server_->start().ok());
    client_ = std::make_unique<HttpClient>("127.0.0.1", server_->port());
  }
  void TearDown() override {
    client_.reset();
    server_.reset();
    EXPECT_THAT(host_.alive(), IsEmpty());
  }
  /// On a connection and a thread of its own.
  std::future<HttpResponse> ask_later(const std::string& model) {
    return std::async(std::launch::async, [port = server_->port(), body = body_for(model)] {
      HttpClient client("127.0.0.1", port);
      auto answer =
          client.send({"POST", "/v1/completions", {{"Content-Type", "application/json"}}, body, ""}, kPatience);
      return answer.ok() ? std::move(answer).value() : HttpResponse{0, {}, ""};
    });
  }
  static std::string body_for(const std::string& model) {
    return R"({"model":")" + model + R"(","prompt":"x","max_tokens":50})";
  }
  HttpResponse ask(const std::string& model) { return post("/v1/completions", body_for(model)); }

  KeeperOptions keeping_;
  ScriptedHost host_;
};

TEST_F(SeveralModelsTest, TheOneThatIsNamedAnswers) {
  start_models({"a", "org/b"});

  const Json a = json(ask("a"));
  const Json b = json(ask("org/b"));

  EXPECT_EQ(content(a), "a says hi");
  EXPECT_EQ(a.string("model"), "a");
  EXPECT_EQ(content(b), "org/b says hi");
  EXPECT_EQ(b.string("model"), "org/b");
}

TEST_F(SeveralModelsTest, C125ThePortIsOpenWhileModelsAreLoaded) {
  options_.http.port = 0;
  options_.api_keys = keys_of({"k"});
  host_.hold();
  server_ = std::make_unique<Server>(options_, keeping_, std::vector{ScriptedHost::card("a", 1, true)}, host_);
  ASSERT_TRUE(server_->listen().ok());
  client_ = std::make_unique<HttpClient>("127.0.0.1", server_->port());
  auto started = std::async(std::launch::async, [this] { return server_->start().ok(); });
  EXPECT_EQ(host_.next_started(), "a");
  const HttpHeaders key = {{"Authorization", "Bearer k"}};

  for (const char* path : {"/health", "/health/ready", "/ping", "/v1/models"}) {
    const HttpResponse response = get(path, key);
    expect_error(response, 503, "", "service_unavailable");
    EXPECT_THAT(response.body, HasSubstr("is being loaded")) << path;
    EXPECT_EQ(header(response, "retry-after"), "5") << path;
  }
  expect_error(post("/v1/completions", body_for("a"), key), 503, "", "service_unavailable");
  EXPECT_EQ(post("/v1/completions", body_for("a")).status, 401);
  for (const char* path : {"/health/live", "/metrics", "/version", "/"}) EXPECT_EQ(get(path).status, 200) << path;

  host_.release();
  EXPECT_TRUE(started.get());
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(content(json(post("/v1/completions", body_for("a"), key))), "a says hi");
}

TEST_F(SeveralModelsTest, AModelThatCannotBeLoadedAtStartIsToldWithThePortOpen) {
  options_.http.port = 0;
  host_.fail("a");
  server_ = std::make_unique<Server>(options_, keeping_, std::vector{ScriptedHost::card("a", 1, true)}, host_);
  ASSERT_TRUE(server_->listen().ok());

  EXPECT_EQ(server_->start().error().message, "the file of a is broken");
}

TEST_F(SeveralModelsTest, TheFirstOneAnswersWhenNoneIsNamed) {
  start_models({"a", "b"});

  EXPECT_EQ(content(json(complete())), "a says hi");
  EXPECT_EQ(content(json(post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}]})"))),
            "a says hi");
}

TEST_F(SeveralModelsTest, Q25NamesAllWhenOneIsUnknown) {
  start_models({"a", "b"});

  const HttpResponse response = ask("c");

  expect_error(response, 404, "model", "model_not_found");
  EXPECT_THAT(response.body, HasSubstr("This server has: a, b."));
  EXPECT_THAT(host_.alive(), IsEmpty());
}

TEST_F(SeveralModelsTest, BrokenBodiesAreToldAsBefore) {
  start_models({"a", "b"});

  for (const std::string body : {R"({"model":)", "[]", "", R"({"model":"b",)"})
    EXPECT_EQ(call("POST", "/v1/completions", body).status, 400) << body;
  expect_error(post("/v1/completions", R"({"model":7,"prompt":"x"})"), 400, "model", "invalid_type");
}

TEST_F(SeveralModelsTest, ListsAllAndSaysWhatIsLoaded) {
  start_models({"a", "b"});
  ask("b");

  const Json list = json(get("/v1/models"));

  ASSERT_EQ(list.find("data")->items().size(), 2U);
  EXPECT_EQ(list.find("data")->items()[0].string("id"), "a");
  EXPECT_EQ(list.find("data")->items()[0].boolean("loaded"), false);
  EXPECT_EQ(list.find("data")->items()[1].boolean("loaded"), true);
  EXPECT_EQ(json(get("/v1/models/b")).string("id"), "b");
  expect_error(get("/v1/models/c"), 404, "model", "model_not_found");
  EXPECT_THAT(get("/").body, HasSubstr("serves a, b."));
}

TEST_F(SeveralModelsTest, EachHasItsOwnSeries) {
  start_models({"a", "b"});
  ask("b");

  const std::string page = get("/metrics").body;

  EXPECT_THAT(page,
              HasSubstr("vllm:request_success_total{model_name=\"a\",engine=\"0\",finished_reason=\"stop\"} 0\n"));
  EXPECT_THAT(page,
              HasSubstr("vllm:request_success_total{model_name=\"b\",engine=\"0\",finished_reason=\"stop\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("quern_model_loaded{model_name=\"a\",engine=\"0\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("quern_model_loaded{model_name=\"b\",engine=\"0\"} 1\n"));
  EXPECT_EQ(page.find("# HELP vllm:num_requests_running "), page.rfind("# HELP vllm:num_requests_running "));
}

TEST_F(SeveralModelsTest, RunningAnswersFinishBeforeTheirModelGoes) {
  keeping_.memory_bytes = 1;
  host_.hold_services();
  start_models({"a", "b"});
  auto a = ask_later("a");
  EXPECT_EQ(host_.next_started(), "a");
  while (host_.alive().empty() || host_.service("a").stats().running == 0) std::this_thread::yield();

  auto b = ask_later("b");
  while (json(get("/v1/models/a")).boolean("loaded") == true) std::this_thread::yield();
  host_.step_service("a", 100);

  EXPECT_EQ(content(json(a.get())), "a says hi");
  EXPECT_EQ(host_.next_destroyed(), "a");
  EXPECT_EQ(host_.next_started(), "b");
  while (!host_.alive().contains("b")) std::this_thread::yield();
  host_.step_service("b", 100);
  EXPECT_EQ(content(json(b.get())), "b says hi");
}

TEST_F(SeveralModelsTest, AModelThatCannotBeLoadedHarmsNoOther) {
  host_.fail("a");
  start_models({"a", "b"});

  const HttpResponse response = ask("a");

  expect_error(response, 503, "", "service_unavailable");
  EXPECT_EQ(response.body.find("broken"), std::string::npos);
  EXPECT_EQ(ask("b").status, 200);
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_THAT(get("/metrics").body,
              HasSubstr("quern_requests_refused_total{model_name=\"a\",engine=\"0\",reason=\"not_loaded\"} 1\n"));
}

TEST_F(SeveralModelsTest, ARequestThatWaitsHasItsDeadlineToo) {
  host_.hold();
  start_models({"a", "b"});

  const HttpResponse response = post("/v1/completions", body_for("a"), {{"X-Request-Timeout-Ms", "5"}});

  EXPECT_EQ(response.status, 504);
  host_.release();
}

TEST_F(SeveralModelsTest, DrainingRefusesWhoWaitsForAModel) {
  host_.hold();
  start_models({"a", "b"});
  auto waiting = ask_later("b");
  EXPECT_EQ(host_.next_started(), "b");

  EXPECT_TRUE(server_->drain(std::chrono::steady_clock::now() + 5s));

  EXPECT_EQ(waiting.get().status, 503);
  host_.release();
}

TEST_F(SeveralModelsTest, EndsWithRunningAnswers) {
  host_.hold_services();
  start_models({"a", "b"});
  auto a = ask_later("a");
  auto b = ask_later("b");
  for (const char* name : {"a", "b"}) {
    while (!host_.alive().contains(name) || host_.service(name).stats().running == 0) std::this_thread::yield();
  }

  server_.reset();

  EXPECT_NE(a.get().status, 200);
  EXPECT_NE(b.get().status, 200);
}

}  // namespace
}  // namespace quern
