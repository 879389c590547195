#include "server/access/gate.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <utility>

#include "base/random.h"
#include "server/wire.h"

namespace quern {
namespace {

constexpr size_t kMaxRequestIdBytes = 128;
constexpr const char* kExposedHeaders =
    "X-Request-Id, X-Unknown-Fields, Retry-After, X-RateLimit-Limit-Requests, X-RateLimit-Remaining-Requests, "
    "X-RateLimit-Reset-Requests, X-RateLimit-Limit-Tokens, X-RateLimit-Remaining-Tokens, X-RateLimit-Reset-Tokens";

bool takes_any(const std::vector<std::string>& allowed) {
  return std::find(allowed.begin(), allowed.end(), "*") != allowed.end();
}

std::string joined(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, ", ")); }

bool is_json_type(std::string_view type) {
  std::string name(type.substr(0, type.find(';')));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  while (!name.empty() && name.back() == ' ') name.pop_back();
  return name.empty() || name == "application/json" || name.ends_with("+json");
}

/// Ollama and llama-server ask for no type, so their users call `curl -d`, which sends that of a form. So can a page of
/// elsewhere without asking, but it names its origin.
bool may_be_json(const HttpRequest& head, const Route& route) {
  const bool peer = route.protocol == Protocol::ollama || route.protocol == Protocol::llama;
  return is_json_type(head.header("content-type")) || (peer && head.header("origin").empty());
}

std::string allow_header(const Route& route) {
  return fmt::format("{}{}, OPTIONS", route.methods, route.methods.starts_with("GET") ? ", HEAD" : "");
}

HttpResponse refusal(const HttpRequest& head, const ApiError& error) {
  return error_response(error, protocol_of(path_of(head.target)));
}

}  // namespace

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 127; });
}

/// The client's id when it is short and plain, else a new one.
std::string request_id(const HttpRequest& request) {
  const std::string_view given = request.header("x-request-id");
  return !given.empty() && given.size() <= kMaxRequestIdBytes && is_printable(given) ? std::string(given)
                                                                                     : random_hex();
}

Gate::Gate(const ServerOptions& options, std::function<void(Refusal)> count)
    : options_(options), count_(std::move(count)) {
  set_keys(options.api_keys);
}

void Gate::set_keys(std::vector<ApiKey> keys) {
  const std::shared_ptr<const Keys> before = this->keys();
  auto made = std::make_shared<const Keys>(std::move(keys), before.get());
  keys_.with([&](auto& present) { present = std::move(made); });
}

std::optional<HttpResponse> Gate::judge(const HttpRequest& head) const {
  if (!host_allowed(head)) {
    return refusal(
        head,
        plain_error(403, "The Host header names another machine; start the server with --allowed-hosts to permit it."));
  }
  if (head.method == "OPTIONS") return preflight(head);
  const std::string path = path_of(head.target);
  const Route* route = find_route(path);
  if (route != nullptr && route->access == Access::admin && !options_.sleep_mode) route = nullptr;
  if (!is_open(route) && !keys()->check(head)) return unauthorized(head);
  const bool off = protocol_of(path) == Protocol::ollama && !options_.ollama_api;
  if (route == nullptr || off)
    return refusal(head, plain_error(404, fmt::format("Invalid URL ({} {}).", head.method, path.substr(0, 128))));
  if (!route->allows(head.method)) {
    HttpResponse response =
        refusal(head, plain_error(405, fmt::format("Not allowed to {} on {}.", head.method, path.substr(0, 128))));
    response.headers.emplace_back("Allow", allow_header(*route));
    return response;
  }
  if (route->generates && closed_) {
    count_(Refusal::draining);
    return refusal(head, plain_error(503, "The server is shutting down."));
  }
  if (head.method == "POST" && route->access == Access::keyed && !may_be_json(head, *route)) {
    return refusal(head, plain_error(415,
                                     "The body of a request must have the content type application/json: with curl add "
                                     "-H 'Content-Type: application/json'."));
  }
  if (const auto coding = head.header("content-encoding"); !coding.empty() && coding != "identity") {
    return refusal(head, plain_error(415, "Bodies are taken as they are: send no Content-Encoding."));
  }
  return std::nullopt;
}

bool Gate::is_open(const Route* route) const {
  return route != nullptr &&
         (route->access == Access::open || (route->access == Access::metrics && !options_.metrics_auth));
}

HttpResponse Gate::unauthorized(const HttpRequest& head) const {
  count_(Refusal::unauthorized);
  if (key_of(head).empty())
    return refusal(head, plain_error(401, "You did not provide an API key: send 'Authorization: Bearer KEY'."));
  ApiError error = plain_error(401, "Incorrect API key provided.");
  error.code = "invalid_api_key";
  return refusal(head, error);
}

/// A web page elsewhere can make a browser ask a server on this machine under a name of its own; keys stop that too.
bool Gate::host_allowed(const HttpRequest& head) const {
  const std::string& bound = options_.http.host;
  const bool loopback = bound == "localhost" || bound == "::1" || bound.starts_with("127.");
  if (!loopback || keys()->required()) return true;
  const std::string_view host = head.header("host");
  const auto& allowed = options_.allowed_hosts;
  return is_local_host(host) || std::any_of(allowed.begin(), allowed.end(), [&](const std::string& name) {
           return name == "*" || name == host || name == host.substr(0, host.rfind(':'));
         });
}

HttpResponse Gate::preflight(const HttpRequest& head) const {
  HttpResponse response{204, {}, ""};
  const Route* route = find_route(path_of(head.target));
  response.headers.emplace_back("Allow", route == nullptr ? "GET, POST, OPTIONS" : allow_header(*route));
  std::string wanted;
  for (const char c : head.header("access-control-request-headers").substr(0, 1024)) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == ',' || c == ' ' || c == '_') wanted += c;
  }
  if (wanted.empty()) wanted = "authorization, content-type";
  response.headers.emplace_back("Access-Control-Allow-Methods", takes_any(options_.allowed_methods)
                                                                    ? "GET, POST, DELETE, OPTIONS"
                                                                    : joined(options_.allowed_methods));
  response.headers.emplace_back("Access-Control-Allow-Headers",
                                takes_any(options_.allowed_headers) ? wanted : joined(options_.allowed_headers));
  response.headers.emplace_back("Access-Control-Max-Age", "86400");
  return response;
}

bool Gate::origin_allowed(std::string_view origin) const {
  const auto& allowed = options_.allowed_origins;
  return takes_any(allowed) || std::find(allowed.begin(), allowed.end(), origin) != allowed.end();
}

HttpHeaders Gate::common_headers(const HttpRequest& request, std::string id) const {
  HttpHeaders headers = {{"X-Request-Id", std::move(id)}};
  const std::string_view origin = request.header("origin");
  if (!origin.empty() && origin_allowed(origin)) {
    // With credentials a browser takes no "*".
    const bool any = takes_any(options_.allowed_origins) && !options_.allow_credentials;
    headers.emplace_back("Access-Control-Allow-Origin", any ? "*" : std::string(origin));
    headers.emplace_back("Access-Control-Expose-Headers", kExposedHeaders);
    if (options_.allow_credentials) headers.emplace_back("Access-Control-Allow-Credentials", "true");
    if (!any) headers.emplace_back("Vary", "Origin");
  }
  if (closed_) headers.emplace_back("Connection", "close");
  return headers;
}

}  // namespace quern
