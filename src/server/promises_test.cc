// Promises of docs/reliability.md that need many clients, or clients that behave badly.
#include <atomic>
#include <fmt/format.h>
#include <future>
#include <set>
#include <thread>

#include "base/file.h"
#include "base/log.h"
#include "net/testing.h"
#include "server/server_fixture.h"
#include "text/constraint.h"

namespace quern {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

class PromiseTest : public ServerTest {
 protected:
  void SetUp() override { set_log_level(LogLevel::warning); }  // thousands of requests
  void TearDown() override { set_log_level(LogLevel::info); }

  static std::string raw_post(const std::string& body) {
    return fmt::format("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
                       body.size(), body);
  }
  /// A request on a connection of its own.
  HttpResponse ask(const std::string& target, const std::string& body, HttpHeaders headers = {}) const {
    HttpClient other("127.0.0.1", server_->port());
    auto answer = other.send({"POST", target, std::move(headers), body, ""}, kPatience);
    EXPECT_TRUE(answer.ok());
    return answer.ok() ? std::move(answer).value() : HttpResponse{0, {}, ""};
  }
  void expect_nothing_open() {
    EXPECT_TRUE(service_->idle());
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    const char* none = "quern_streams_open{model_name=\"org/model\",engine=\"0\"} 0\n";
    while (get("/metrics").body.find(none) == std::string::npos) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "a stream stays open";
    }
  }
};

TEST_F(PromiseTest, C1AConnectionMayEndAtEveryByte) {
  script("hello");
  start();
  const std::string whole = raw_post(chat_body(R"("stream":false)"));
  const std::string streamed = raw_post(chat_body(R"("stream":true,"n":2)"));
  RawClient sample(server_->port());
  sample.send(streamed);
  const size_t answer_size = sample.read_until("0\r\n\r\n").size();
  std::atomic<bool> done = false;
  std::atomic<int> good = 0;
  auto neighbour = std::async(std::launch::async, [&] {
    for (; !done; ++good) {
      if (ask("/v1/completions", prompt_body()).body.find("\"hello\"") == std::string::npos) return false;
    }
    return true;
  });

  for (const std::string& request : {whole, streamed}) {
    for (size_t size = 0; size <= request.size(); ++size) {
      RawClient leaver(server_->port());
      leaver.send(std::string_view(request).substr(0, size));
      if (size % 2 == 0) leaver.reset();
    }
  }
  for (size_t size = 1; size <= answer_size; size += 3) {
    RawClient leaver(server_->port());
    leaver.send(streamed);
    leaver.read(size);
    if (size % 2 == 0) leaver.reset();
  }
  done = true;

  EXPECT_TRUE(neighbour.get());
  EXPECT_GT(good, 0);
  expect_nothing_open();
}

TEST_F(PromiseTest, C7HealthStaysGoodWhileMuchWaitsForSlowSteps) {
  options_.watchdog_timeout_s = 1;
  start();
  service_->hold();
  std::vector<std::future<int>> answers;
  for (int i = 0; i < 8; ++i) {
    answers.push_back(std::async(std::launch::async, [&] {
      return ask("/v1/chat/completions", chat_body(R"("n":125,"max_tokens":20)")).status;
    }));
  }
  while (service_->stats().running < 1000) std::this_thread::yield();

  for (int i = 0; i < 10; ++i) {
    service_->step();
    EXPECT_EQ(get("/health").status, 200);
    EXPECT_EQ(get("/health/ready").status, 200);
    std::this_thread::sleep_for(50ms);  // a slow step
  }
  service_->step(100);

  for (auto& answer : answers) EXPECT_EQ(answer.get(), 200);
}

std::shared_ptr<const Tokenizer> real_tokenizer() {
  const auto text = read_file(QUERN_SOURCE_DIR "/src/text/testdata/llama3.tokenizer.json");
  EXPECT_TRUE(text.ok());
  auto tokenizer = Tokenizer::from_json(*text, Json());
  EXPECT_TRUE(tokenizer.ok());
  return *tokenizer;
}

/// What tokenizer, template and grammars make of one text, in one number.
size_t text_work(const Tokenizer& tokenizer, const ChatTemplate& chat, ConstraintCompiler& compiler, int i) {
  const std::string text = fmt::format("Thread {} says \u4E16\u754C <|eot_id|> {}", i % 7, i % 5);
  std::string all;
  const auto ids = tokenizer.encode(text, {.add_special = i % 2 == 0});
  for (const int32_t id : *ids) all += fmt::format("{} ", id);
  all += tokenizer.decode(*ids, i % 3 == 0);
  const Json message(Json::Object{{"role", "user"}, {"content", text}});
  const Json variables(Json::Object{{"messages", Json(Json::Array{message})}, {"bos_token", "<s>"}});
  const auto rendered = chat.render(variables, {});
  for (const TextPiece& piece : *rendered) all += piece.text;
  const ConstraintSpec spec{.kind = ConstraintSpec::Kind::json_schema,
                            .text = fmt::format(R"({{"type":"object","properties":{{"p{}":{{}}}}}})", i % 4)};
  const auto matcher = (*compiler.compile(spec))->start();
  std::vector<uint32_t> words;
  for (const char c : std::string_view("{\"")) {
    EXPECT_TRUE(matcher->accept(static_cast<unsigned char>(c)) && matcher->fill(words));
    for (const uint32_t word : words) all += fmt::format("{} ", word);
  }
  return std::hash<std::string>()(all);
}

TEST(TextPromise, C20TextWorkOfManyThreadsIsThatOfOne) {
  constexpr int cases = 140;
  const auto tokenizer = real_tokenizer();
  const auto bytes = std::make_shared<ByteTokenizer>();
  const ChatTemplate chat = ChatTemplate::parse(kTestTemplate).value();
  ConstraintCompiler alone(bytes, bytes->size(), {ByteTokenizer::kEos});
  std::vector<size_t> wanted;
  for (int i = 0; i < cases; ++i) wanted.push_back(text_work(*tokenizer, chat, alone, i));
  ConstraintCompiler shared(bytes, bytes->size(), {ByteTokenizer::kEos});
  std::atomic<int> wrong = 0;

  std::vector<std::thread> threads;
  for (int t = 0; t < 64; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < t + 10; ++i) {
        if (text_work(*tokenizer, chat, shared, i % cases) != wanted[static_cast<size_t>(i % cases)]) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(wrong, 0);
}

TEST_F(PromiseTest, C24EqualRequestIdsDoNotMixAnswers) {
  script([](const Request& request) {
    const std::string prompt = ByteTokenizer().decode(request.prompt, true);
    return "echo " + prompt.substr(prompt.find('#'));
  });
  start();
  service_->hold();
  std::vector<std::future<HttpResponse>> answers;
  for (int i = 0; i < 6; ++i) {
    answers.push_back(std::async(std::launch::async, [&, i] {
      const std::string body = fmt::format(R"({{"prompt":"#{}","n":2,"max_tokens":50}})", i);
      return ask("/v1/completions", body, {{"X-Request-Id", "the-same"}});
    }));
  }
  while (service_->stats().running < 12) std::this_thread::yield();
  service_->step(30);

  for (size_t i = 0; i < answers.size(); ++i) {
    const HttpResponse answer = answers[i].get();
    EXPECT_EQ(header(answer, "x-request-id"), "the-same");
    for (size_t choice = 0; choice < 2; ++choice) EXPECT_EQ(content(json(answer), choice), fmt::format("echo #{}", i));
  }
  std::set<RequestId> ids;
  for (const Request& request : service_->seen()) ids.insert(request.id);
  EXPECT_EQ(ids.size(), 12U);
}

TEST_F(PromiseTest, C24EachOfManyAnswersHasItsOwnTag) {
  script([](const Request& request) { return ByteTokenizer().decode(request.prompt, true); });
  options_.http.shards = 2;
  start();
  std::vector<std::future<int>> clients;
  for (int c = 0; c < 8; ++c) {
    clients.push_back(std::async(std::launch::async, [&, c] {
      HttpClient own("127.0.0.1", server_->port());
      int wrong = 0;
      for (int i = c; i < 4000; i += 8) {
        const std::string body = fmt::format(R"({{"prompt":"tag {}.","max_tokens":40}})", i);
        const auto answer = own.send({"POST", "/v1/completions", {}, body, ""}, kPatience);
        wrong += !answer.ok() || answer->body.find(fmt::format("\"tag {}.\"", i)) == std::string::npos ? 1 : 0;
      }
      return wrong;
    }));
  }

  for (auto& client : clients) EXPECT_EQ(client.get(), 0);
}

TEST_F(PromiseTest, S23PromptsAsTensorsAreRefusedByName) {
  start();

  expect_error(complete(R"("prompt_embeds":"AAAA")"), 400, "prompt_embeds", "unsupported_parameter");
  expect_error(chat(R"("prompt_embeds":["AAAA"])"), 400, "prompt_embeds", "unsupported_parameter");
}

TEST_F(PromiseTest, S34NothingIsUnpacked) {
  start();
  const std::string gzip("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x4b\x04\x00\x43\xbe\xb7\xe8\x01\x00\x00\x00", 21);

  const HttpResponse response = post("/v1/chat/completions", gzip, {{"Content-Encoding", "gzip"}});

  EXPECT_EQ(response.status, 415);
  EXPECT_THAT(response.body, HasSubstr("Content-Encoding"));
  EXPECT_EQ(post("/v1/chat/completions", chat_body(), {{"Content-Encoding", "identity"}}).status, 200);
}

}  // namespace
}  // namespace quern
