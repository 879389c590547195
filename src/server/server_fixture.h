// For tests: a server on the loopback interface over a scripted service, and calls to it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "net/http_client.h"
#include "net/sse.h"
#include "server/scripted_service.h"
#include "server/server.h"

namespace quern {

/// The whole stream of an answer.
struct StreamedAnswer {
  HttpResponse head;
  std::vector<Json> chunks;  // without the end mark
  bool done = false;         // the end mark came last

  /// All text of one choice, in chat or completion form.
  std::string text(int64_t index = 0) const {
    std::string out;
    for (const Json& chunk : chunks) {
      for (const Json& choice : chunk.find("choices")->items()) {
        if (choice.integer("index") != index) continue;
        const Json* delta = choice.find("delta");
        out += (delta != nullptr ? delta->string("content") : choice.string("text")).value_or("");
      }
    }
    return out;
  }
};

inline constexpr const char* kTestTemplate =
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% if mood is defined %}({{ mood }}){% endif %}{% endif %}";

class ServerTest : public ::testing::Test {
 protected:
  void script(ScriptedService::Script script) { service_ = std::make_unique<ScriptedService>(std::move(script)); }
  void script(std::string text) {
    script([text = std::move(text)](const Request&) { return text; });
  }

  void start() {
    if (!service_) script("hello");
    options_.http.port = 0;
    if (options_.model_names.empty()) options_.model_names = {"org/model", "alias"};
    if (options_.max_model_len == 0) options_.max_model_len = 200;
    options_.end_tokens = {ByteTokenizer::kEos};
    options_.version = "1.2.3";
    auto parsed = ChatTemplate::parse(template_);
    ASSERT_TRUE(parsed.ok());
    server_ = std::make_unique<Server>(options_, *service_, tokenizer_,
                                       std::make_shared<const ChatTemplate>(std::move(parsed).value()));
    ASSERT_TRUE(server_->start().ok());
    client_ = std::make_unique<HttpClient>("127.0.0.1", server_->port());
  }

  HttpResponse call(std::string method, std::string target, std::string body = "", HttpHeaders headers = {}) {
    if (!body.empty()) headers.emplace_back("Content-Type", "application/json");
    auto answer =
        client_->send({std::move(method), std::move(target), std::move(headers), std::move(body), ""}, kPatience);
    EXPECT_TRUE(answer.ok()) << answer.error().message;
    return answer.ok() ? std::move(answer).value() : HttpResponse{0, {}, ""};
  }
  static std::vector<ApiKey> keys_of(const std::vector<std::string>& texts) {
    std::vector<ApiKey> keys;
    for (const std::string& text : texts) keys.push_back({"", key_digest(text), {}});
    return keys;
  }
  HttpResponse get(std::string target, HttpHeaders headers = {}) {
    return call("GET", std::move(target), "", std::move(headers));
  }
  HttpResponse post(std::string target, std::string body, HttpHeaders headers = {}) {
    return call("POST", std::move(target), std::move(body), std::move(headers));
  }
  /// A chat of one message "hi" with further members, as `"n":2`.
  static std::string chat_body(const std::string& more = "") {
    return R"({"model":"alias","messages":[{"role":"user","content":"hi"}])" + (more.empty() ? "" : "," + more) + "}";
  }
  static std::string prompt_body(const std::string& more = "") {
    return R"({"prompt":"hi")" + (more.empty() ? "" : "," + more) + "}";
  }
  HttpResponse chat(const std::string& more = "", HttpHeaders headers = {}) {
    return post("/v1/chat/completions", chat_body(more), std::move(headers));
  }
  HttpResponse complete(const std::string& more = "") { return post("/v1/completions", prompt_body(more)); }

  StreamedAnswer stream(const std::string& target, const std::string& body) {
    StreamedAnswer answer;
    SseReader reader;
    const auto take = [&](std::string_view piece) {
      for (const std::string& data : reader.add(piece)) {
        answer.done = data == "[DONE]";
        if (answer.done) continue;
        auto chunk = Json::parse(data);
        EXPECT_TRUE(chunk.ok()) << data;
        if (chunk.ok()) answer.chunks.push_back(std::move(chunk).value());
      }
      return true;
    };
    auto head = client_->send({"POST", target, {{"Content-Type", "application/json"}}, body, ""}, kPatience, take);
    EXPECT_TRUE(head.ok());
    if (head.ok()) answer.head = std::move(head).value();
    return answer;
  }
  StreamedAnswer stream_chat(const std::string& more = "") {
    return stream("/v1/chat/completions", chat_body(R"("stream":true)" + (more.empty() ? "" : "," + more)));
  }
  StreamedAnswer stream_completion(const std::string& more = "") {
    return stream("/v1/completions", prompt_body(R"("stream":true)" + (more.empty() ? "" : "," + more)));
  }

  static Json json(const HttpResponse& response) {
    auto parsed = Json::parse(response.body);
    EXPECT_TRUE(parsed.ok()) << response.body;
    return parsed.ok() ? std::move(parsed).value() : Json();
  }
  static std::string header(const HttpResponse& response, std::string_view name) {
    for (const auto& [key, value] : response.headers) {
      if (key == name) return value;
    }
    return "";
  }
  static const Json& choice(const Json& body, size_t index = 0) { return body.find("choices")->items().at(index); }
  static std::string content(const Json& body, size_t index = 0) {
    const Json& found = choice(body, index);
    const Json* message = found.find("message");
    return (message != nullptr ? message->string("content") : found.string("text")).value_or("?");
  }
  static int64_t usage(const Json& body, std::string_view name) {
    return body.find("usage")->integer(name).value_or(-1);
  }

  /// The prompt of a request that the service has seen.
  std::string seen_prompt(size_t index = 0) {
    const std::vector<Request> seen = service_->seen();
    return ByteTokenizer().decode(seen.at(index).prompt, false);
  }

  void expect_error(const HttpResponse& response, int status, std::string_view param, std::string_view code) {
    EXPECT_EQ(response.status, status) << response.body;
    const Json body = json(response);
    const Json* error = body.find("error");
    ASSERT_NE(error, nullptr) << response.body;
    EXPECT_EQ(error->members().size(), 4U);
    EXPECT_TRUE(error->string("message").has_value());
    EXPECT_TRUE(error->string("type").has_value());
    EXPECT_EQ(error->string("param").value_or(""), param) << response.body;
    EXPECT_EQ(error->string("code").value_or(""), code) << response.body;
  }

  static constexpr std::chrono::milliseconds kPatience{10'000};

  std::string template_ = kTestTemplate;
  std::shared_ptr<const Tokenizer> tokenizer_ = std::make_shared<ByteTokenizer>();
  ServerOptions options_;
  std::unique_ptr<ScriptedService> service_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<HttpClient> client_;
};

}  // namespace quern
