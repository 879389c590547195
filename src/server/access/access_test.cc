// Keys with names and limits, browsers of other origins, and sleep, over the loopback interface.
#include <future>

#include "server/server_fixture.h"

namespace quern {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

class AccessTest : public ServerTest {
 protected:
  static ApiKey key(const std::string& name, const std::string& text, const KeyLimits& limits = {}) {
    return {name, key_digest(text), limits};
  }
  HttpResponse complete_as(const std::string& text, const std::string& more = "") {
    return post("/v1/completions", prompt_body(more), {{"Authorization", "Bearer " + text}});
  }
};

TEST_F(AccessTest, S27ALimitOfOneKeyStopsNoOther) {
  options_.api_keys = {key("alice", "alice-key", {.requests_per_minute = 1}), key("bob", "bob-key")};
  start();

  const HttpResponse first = complete_as("alice-key");
  const HttpResponse second = complete_as("alice-key");

  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(header(first, "x-ratelimit-limit-requests"), "1");
  EXPECT_EQ(header(first, "x-ratelimit-remaining-requests"), "0");
  expect_error(second, 429, "", "rate_limit_exceeded");
  EXPECT_GE(std::stoi(header(second, "retry-after")), 1);
  EXPECT_THAT(second.body, HasSubstr("1 requests per minute"));
  EXPECT_EQ(complete_as("bob-key").status, 200);
  EXPECT_EQ(header(complete_as("bob-key"), "x-ratelimit-limit-requests"), "");
  EXPECT_EQ(get("/v1/models", {{"Authorization", "Bearer alice-key"}}).status, 200);
}

TEST_F(AccessTest, TokensOfPromptsAndAnswersCount) {
  options_.api_keys = {key("alice", "alice-key", {.tokens_per_minute = 6})};
  start();

  EXPECT_EQ(complete_as("alice-key").status, 200);  // 3 tokens of prompt, 6 of answer

  const HttpResponse second = complete_as("alice-key");
  EXPECT_EQ(second.status, 429);
  EXPECT_EQ(header(second, "x-ratelimit-remaining-tokens"), "0");
  EXPECT_GE(std::stoi(header(second, "retry-after")), 20);
}

TEST_F(AccessTest, OnlySoManyRequestsOfAKeyRun) {
  options_.api_keys = {key("alice", "alice-key", {.concurrency = 1})};
  script("hello");
  service_->hold();
  start();
  auto running = std::async(std::launch::async, [port = server_->port()] {
    HttpClient other("127.0.0.1", port);
    return other
        .send({"POST", "/v1/completions", {{"Authorization", "Bearer alice-key"}}, prompt_body(), ""}, kPatience)
        .value()
        .status;
  });
  while (service_->seen().empty()) std::this_thread::yield();

  EXPECT_EQ(complete_as("alice-key").status, 429);
  service_->step(20);
  EXPECT_EQ(running.get(), 200);
  service_->step(20);
  while (complete_as("alice-key").status == 429) std::this_thread::yield();
}

TEST_F(AccessTest, TheKeysPriorityIsAdded) {
  options_.api_keys = {key("alice", "alice-key", {.priority = 7})};
  start();

  complete_as("alice-key", R"("priority":-2)");

  EXPECT_EQ(service_->seen().at(0).priority, 5);
}

TEST_F(AccessTest, OtherKeysMayBeSetWhileItRuns) {
  options_.api_keys = {key("alice", "alice-key", {.requests_per_minute = 1}), key("bob", "bob-key")};
  start();
  EXPECT_EQ(complete_as("alice-key").status, 200);

  server_->set_keys({key("alice", "alice-key", {.requests_per_minute = 1}), key("carol", "carol-key")});

  EXPECT_EQ(complete_as("bob-key").status, 401);
  EXPECT_EQ(complete_as("carol-key").status, 200);
  EXPECT_EQ(complete_as("alice-key").status, 429);  // what is used stays used
}

TEST_F(AccessTest, BrowsersMaySendCredentialsWhereThatIsAllowed) {
  options_.allow_credentials = true;
  options_.allowed_methods = {"POST"};
  options_.allowed_headers = {"authorization", "x-own"};
  start();

  const HttpResponse preflight =
      call("OPTIONS", "/v1/completions", "",
           {{"Origin", "http://page"}, {"Access-Control-Request-Headers", "authorization, x-other"}});

  EXPECT_EQ(header(preflight, "access-control-allow-origin"), "http://page");
  EXPECT_EQ(header(preflight, "access-control-allow-credentials"), "true");
  EXPECT_EQ(header(preflight, "access-control-allow-methods"), "POST");
  EXPECT_EQ(header(preflight, "access-control-allow-headers"), "authorization, x-own");
  EXPECT_EQ(header(preflight, "vary"), "Origin");
}

TEST_F(AccessTest, S28OtherOriginsGetNoLeave) {
  options_.allowed_origins = {"http://page"};
  start();

  EXPECT_EQ(header(get("/version", {{"Origin", "http://page"}}), "access-control-allow-origin"), "http://page");
  EXPECT_EQ(header(get("/version", {{"Origin", "http://other"}}), "access-control-allow-origin"), "");
}

TEST_F(AccessTest, Q134SleepIsThereOnlyWhereItIsEnabled) {
  start();

  EXPECT_EQ(call("POST", "/sleep").status, 404);
  EXPECT_EQ(call("POST", "/wake_up").status, 404);
  EXPECT_EQ(get("/is_sleeping").status, 404);
}

TEST_F(AccessTest, Q134ForgetsPrefixes) {
  start();
  EXPECT_EQ(call("POST", "/reset_prefix_cache").status, 404);

  options_.sleep_mode = true;
  start();
  EXPECT_EQ(call("POST", "/reset_prefix_cache").status, 200);
  EXPECT_EQ(service_->resets(), 1);
}

TEST_F(AccessTest, Q134SleepsAndWakes) {
  options_.sleep_mode = true;
  options_.api_keys = {key("alice", "alice-key")};
  start();
  const HttpHeaders admin = {{"Authorization", "Bearer alice-key"}};

  EXPECT_EQ(call("POST", "/sleep").status, 401);
  expect_error(call("POST", "/sleep?level=3", "", admin), 400, "level", "invalid_value");
  EXPECT_EQ(get("/is_sleeping", admin).body, R"({"is_sleeping":false})");
  EXPECT_EQ(call("POST", "/sleep?level=2", "", admin).status, 200);
  EXPECT_EQ(get("/is_sleeping", admin).body, R"({"is_sleeping":true})");
  EXPECT_THAT(get("/metrics").body, HasSubstr("sleep_state=\"discard_all\"} 1\n"));
  EXPECT_EQ(complete_as("alice-key").status, 503);
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(call("POST", "/wake_up", "", admin).status, 200);
  EXPECT_EQ(complete_as("alice-key").status, 200);
  EXPECT_THAT(get("/metrics").body, HasSubstr("sleep_state=\"awake\"} 1\n"));
}

TEST_F(AccessTest, SleepFinishesOrCutsOffWhatRuns) {
  options_.sleep_mode = true;
  script("hello");
  service_->hold();
  start();
  auto running = std::async(std::launch::async, [port = server_->port()] {
    HttpClient other("127.0.0.1", port);
    return other.send({"POST", "/v1/completions", {}, prompt_body(), ""}, kPatience).value().status;
  });
  while (service_->seen().empty()) std::this_thread::yield();

  EXPECT_EQ(call("POST", "/sleep?mode=abort").status, 200);

  EXPECT_EQ(running.get(), 503);
}

}  // namespace
}  // namespace quern
