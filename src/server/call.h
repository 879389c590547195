// Call: one HTTP request inside the server and the way to answer it, with what every answer carries. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "engine/request.h"
#include "net/http_server.h"
#include "server/access/budget.h"
#include "server/metrics/http.h"
#include "server/openai/errors.h"
#include "server/protocol.h"

namespace quern {

/// Who asks: found by the API key.
struct Principal {
  ClientId client{};
  std::string salt;  // "" when all may share prefixes
  std::string name;  // of the key; "" when it has none
  std::shared_ptr<KeyBudget> budget;
};

class Call {
 public:
  Call(HttpRequest http_request, std::shared_ptr<Responder> to, std::string name, HttpHeaders common,
       RouteMetrics& metrics);

  const HttpRequest request;
  const std::shared_ptr<Responder> responder;
  std::string id;  // X-Request-Id
  const int64_t arrived_us;
  Principal principal;
  std::unique_ptr<KeyUse> use;           // its place among those of its key, if it was admitted
  bool quiet = false;                    // logged for debugging only
  Protocol protocol = Protocol::openai;  // of errors and streams

  /// Another X-Request-Id; before the answer.
  void rename(std::string name);

  /// Takes what the key still has for a request, or answers why there is none: false.
  bool admit();
  /// Goes out with the answer too.
  void add_header(std::string name, std::string value) { common_.emplace_back(std::move(name), std::move(value)); }

  /// Says so in the answer and in the log.
  void name_unknown_fields(const std::vector<std::string>& names);

  void send(HttpResponse response);
  void send(const ApiError& error);
  void send_json(std::string body) { send({200, {{"Content-Type", "application/json"}}, std::move(body)}); }
  /// Server-sent events, or lines where the protocol has those; end_events() counts the time they took.
  void begin_events();
  void end_events() { metrics_.seconds.observe(seconds_since(arrived_us)); }

 private:
  void count(int status, size_t bytes);

  HttpHeaders common_;
  RouteMetrics& metrics_;
};

/// The line of an answered request; `key` is the name of the key that it came with.
void log_answer(LogLevel level, const std::string& id, const HttpRequest& request, int status,
                const std::string& key = "");

}  // namespace quern
