#include "server/call.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/clock.h"
#include "base/event.h"
#include "server/wire.h"

namespace quern {
namespace {

constexpr size_t kMaxNamedFields = 16;

/// Names as a header value: what is no plain character is dropped.
std::string header_list(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kMaxNamedFields); ++i) {
    if (i > 0) out += ", ";
    for (const char c : names[i].substr(0, 64)) {
      if (c > ' ' && c < 127 && c != ',') out += c;
    }
  }
  return out;
}

}  // namespace

Call::Call(HttpRequest http_request, std::shared_ptr<Responder> to, std::string name, HttpHeaders common,
           RouteMetrics& metrics)
    : request(std::move(http_request)),
      responder(std::move(to)),
      id(std::move(name)),
      arrived_us(now_us()),
      common_(std::move(common)),
      metrics_(metrics) {
  metrics_.request_bytes.fetch_add(static_cast<int64_t>(request.body.size()), std::memory_order_relaxed);
}

void Call::rename(std::string name) {
  id = std::move(name);
  for (auto& [header, value] : common_) {
    if (header == "X-Request-Id") value = id;
  }
}

bool Call::admit() {
  if (!principal.budget) return true;
  const std::optional<ApiError> refused = principal.budget->enter(now_us());
  for (auto& [header, value] : principal.budget->headers(now_us())) add_header(header, value);
  if (refused) return send(*refused), false;
  use = std::make_unique<KeyUse>(principal.budget);
  return true;
}

void Call::name_unknown_fields(const std::vector<std::string>& names) {
  if (names.empty()) return;
  const std::string list = header_list(names);
  log_request(LogLevel::warning, id, fmt::format("unknown fields are ignored: {}", list));
  add_header("X-Unknown-Fields", list);
}

void Call::send(HttpResponse response) {
  count(response.status, response.body.size());
  metrics_.seconds.observe(seconds_since(arrived_us));
  response.headers.insert(response.headers.end(), common_.begin(), common_.end());
  responder->send(std::move(response));
}

void Call::send(const ApiError& error) { send(error_response(error, protocol)); }

void Call::begin_events() {
  count(200, 0);
  const char* const type = protocol == Protocol::ollama ? "application/x-ndjson" : "text/event-stream; charset=utf-8";
  HttpHeaders headers = {{"Content-Type", type}, {"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  headers.insert(headers.end(), common_.begin(), common_.end());
  responder->begin_stream(200, std::move(headers));
}

void log_answer(LogLevel level, const std::string& id, const HttpRequest& request, int status, const std::string& key) {
  std::string target = request.target.substr(0, 128);
  const std::string line =
      fmt::format("{}{} {} {} -> {}", key.empty() ? "" : key + " ", request.peer, request.method, target, status);
  log_request(level, id, line,
              {{"peer", request.peer},
               {"method", request.method},
               {"target", std::move(target)},
               {"status", int64_t{status}},
               {"key", key}});
}

void Call::count(int status, size_t bytes) {
  metrics_.by_status[static_cast<size_t>(status / 100)].fetch_add(1, std::memory_order_relaxed);
  metrics_.response_bytes.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  log_answer(quiet ? LogLevel::debug : LogLevel::info, id, request, status, principal.name);
}

}  // namespace quern
