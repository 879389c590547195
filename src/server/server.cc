#include "server/server.h"

#include <algorithm>
#include <fmt/format.h>
#include <random>
#include <unordered_map>
#include <utility>

#include "base/channel.h"
#include "base/clock.h"
#include "base/event.h"
#include "base/guarded.h"
#include "server/anthropic/messages.h"
#include "server/auth.h"
#include "server/call.h"
#include "server/constraints.h"
#include "server/metrics.h"
#include "server/openai/generation.h"
#include "server/openai/pooling.h"
#include "server/openai/tokens.h"
#include "server/page.h"
#include "server/pooling_session.h"
#include "server/routes.h"
#include "server/session.h"
#include "server/text_pool.h"

namespace quern {
namespace {

constexpr size_t kMaxRequestIdBytes = 128;
constexpr size_t kMaxNamedFields = 16;
constexpr std::chrono::milliseconds kFlushTime{2'000};

std::string random_id() {
  thread_local std::mt19937_64 engine{std::random_device{}()};
  return fmt::format("{:016x}{:016x}", engine(), engine());
}

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 127; });
}

/// The client's id when it is short and plain, else a new one.
std::string request_id(const HttpRequest& request) {
  const std::string_view given = request.header("x-request-id");
  return !given.empty() && given.size() <= kMaxRequestIdBytes && is_printable(given) ? std::string(given) : random_id();
}

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

bool is_json_type(std::string_view type) {
  std::string name(type.substr(0, type.find(';')));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  while (!name.empty() && name.back() == ' ') name.pop_back();
  return name.empty() || name == "application/json" || name.ends_with("+json");
}

std::string allow_header(const Route& route) {
  return fmt::format("{}{}, OPTIONS", route.methods, route.methods.starts_with("GET") ? ", HEAD" : "");
}

size_t longest_token(const Tokenizer& tokenizer) {
  size_t longest = 1;
  for (int32_t id = 0; id < tokenizer.size(); ++id) longest = std::max(longest, tokenizer.token_bytes(id).size());
  return longest;
}

}  // namespace

class Server::Core final : public std::enable_shared_from_this<Server::Core> {
 public:
  Core(ServerOptions options, TokenService& engine, std::shared_ptr<const Tokenizer> tokenizer,
       std::shared_ptr<const ChatTemplate> chat_template)
      : engine_(engine),
        created_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                     .count()),
        keys_(options.api_keys),
        metrics_(options.model_names.front(), options.max_model_len, options.block_tokens, true) {
    text_.longest_token_bytes = longest_token(*tokenizer);
    text_.options = std::move(options);
    text_.tokenizer = std::move(tokenizer);
    text_.chat_template = std::move(chat_template);
    if (text_.chat_template) text_.calls = try_calls(*text_.chat_template);
    constraints_ = std::make_unique<Constraints>(text_.tokenizer, text_.vocab_size(), text_.options.end_tokens);
    for (const Route& route : kRoutes)
      route_metrics_.push_back(&metrics_.add_route(route.path, route.methods.substr(0, route.methods.find(','))));
    unknown_route_ = &metrics_.add_route("none", "GET");
  }

  Status start() {
    pool_ = std::make_unique<TextPool>(std::max(1, options().text_threads),
                                       static_cast<size_t>(options().max_queued_texts));
    HttpServerOptions http = options().http;
    http.check_head = [this](const HttpRequest& head) { return check_head(head); };
    http.refusal = [](int status, std::string_view message) {
      HttpResponse response = error_response(plain_error(status, std::string(message)));
      response.headers.emplace_back("X-Request-Id", random_id());
      return response;
    };
    ASSIGN_OR_RETURN(
        http_, HttpServer::start(std::move(http), [this](HttpRequest request, std::shared_ptr<Responder> responder) {
          handle(std::move(request), std::move(responder));
        }));
    return {};
  }

  /// Sessions that the engine still knows keep this object; the threads are gone.
  void stop() {
    http_.reset();
    pool_.reset();
    constraints_->stop();
  }

  int port() const { return http_->port(); }

  bool drain(std::chrono::steady_clock::time_point deadline) {
    draining_ = true;
    engine_.stop_accepting();
    while (session_count() > 0) {
      if (!session_ended_.receive_until(deadline)) break;
    }
    const bool all = session_count() == 0;
    if (!all) abort_sessions();
    http_->finish(kFlushTime);
    return all;
  }

 private:
  using Sessions = std::unordered_map<const LiveSession*, std::weak_ptr<LiveSession>>;

  const ServerOptions& options() const { return text_.options; }
  size_t session_count() {
    return sessions_.with([](Sessions& sessions) { return sessions.size(); });
  }

  void abort_sessions() {
    std::vector<std::shared_ptr<LiveSession>> rest;
    sessions_.with([&](Sessions& sessions) {
      for (auto& [key, weak] : sessions) {
        if (auto session = weak.lock()) rest.push_back(std::move(session));
      }
    });
    for (const auto& session : rest) session->abort(plain_error(503, "The server is shutting down."));
  }

  HttpHeaders common_headers(const HttpRequest& request, std::string id) const {
    HttpHeaders headers = {{"X-Request-Id", std::move(id)}};
    const std::string_view origin = request.header("origin");
    const auto& allowed = options().allowed_origins;
    const bool any = std::find(allowed.begin(), allowed.end(), "*") != allowed.end();
    if (!origin.empty() && (any || std::find(allowed.begin(), allowed.end(), origin) != allowed.end())) {
      headers.emplace_back("Access-Control-Allow-Origin", any ? "*" : std::string(origin));
      headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id");
      if (!any) headers.emplace_back("Vary", "Origin");
    }
    if (draining_) headers.emplace_back("Connection", "close");
    return headers;
  }

  /// Everything that can be refused before the body is read.
  std::optional<HttpResponse> check_head(const HttpRequest& head) {
    std::optional<HttpResponse> answer = judge(head);
    if (!answer) return answer;
    std::string id = request_id(head);
    const std::string path = path_of(head.target);
    const Route* route = find_route(path);
    RouteMetrics& metrics = metrics_of(route);
    metrics.by_status[static_cast<size_t>(answer->status / 100)].fetch_add(1, std::memory_order_relaxed);
    log_answer(LogLevel::info, id, head, answer->status);
    for (auto& header : common_headers(head, std::move(id))) answer->headers.push_back(std::move(header));
    return answer;
  }

  std::optional<HttpResponse> judge(const HttpRequest& head) {
    if (!host_allowed(head)) {
      return error_response(plain_error(
          403, "The Host header names another machine; start the server with --allowed-hosts to permit it."));
    }
    if (head.method == "OPTIONS") return preflight(head);
    const std::string path = path_of(head.target);
    const Route* route = find_route(path);
    if (!is_open(route) && !keys_.check(head)) return unauthorized(head);
    if (route == nullptr)
      return error_response(plain_error(404, fmt::format("Invalid URL ({} {}).", head.method, path.substr(0, 128))));
    if (!route->allows(head.method)) {
      HttpResponse response =
          error_response(plain_error(405, fmt::format("Not allowed to {} on {}.", head.method, path.substr(0, 128))));
      response.headers.emplace_back("Allow", allow_header(*route));
      return response;
    }
    if (route->generates && draining_) {
      metrics_.count(Refusal::draining);
      return error_response(plain_error(503, "The server is shutting down."));
    }
    if (head.method == "POST" && route->access == Access::keyed && !is_json_type(head.header("content-type"))) {
      return error_response(plain_error(415, "The body of a request must have the content type application/json."));
    }
    return std::nullopt;
  }

  bool is_open(const Route* route) const {
    return route != nullptr &&
           (route->access == Access::open || (route->access == Access::metrics && !options().metrics_auth));
  }

  HttpResponse unauthorized(const HttpRequest& head) {
    metrics_.count(Refusal::unauthorized);
    if (key_of(head).empty())
      return error_response(plain_error(401, "You did not provide an API key: send 'Authorization: Bearer KEY'."));
    ApiError error = plain_error(401, "Incorrect API key provided.");
    error.code = "invalid_api_key";
    return error_response(error);
  }

  /// A web page elsewhere can make a browser ask a server on this machine under a name of its own; keys stop that too.
  bool host_allowed(const HttpRequest& head) const {
    const std::string& bound = options().http.host;
    const bool loopback = bound == "localhost" || bound == "::1" || bound.starts_with("127.");
    if (!loopback || keys_.required()) return true;
    const std::string_view host = head.header("host");
    const auto& allowed = options().allowed_hosts;
    return is_local_host(host) || std::any_of(allowed.begin(), allowed.end(), [&](const std::string& name) {
             return name == "*" || name == host || name == host.substr(0, host.rfind(':'));
           });
  }

  HttpResponse preflight(const HttpRequest& head) const {
    HttpResponse response{204, {}, ""};
    const Route* route = find_route(path_of(head.target));
    response.headers.emplace_back("Allow", route == nullptr ? "GET, POST, OPTIONS" : allow_header(*route));
    std::string wanted;
    for (const char c : head.header("access-control-request-headers").substr(0, 1024)) {
      if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == ',' || c == ' ' || c == '_') wanted += c;
    }
    response.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    response.headers.emplace_back("Access-Control-Allow-Headers",
                                  wanted.empty() ? "authorization, content-type" : wanted);
    response.headers.emplace_back("Access-Control-Max-Age", "86400");
    return response;
  }

  RouteMetrics& metrics_of(const Route* route) {
    return route == nullptr ? *unknown_route_ : *route_metrics_[static_cast<size_t>(route - kRoutes)];
  }

  void handle(HttpRequest request, std::shared_ptr<Responder> responder) {
    const std::string path = path_of(request.target);
    const Route& route = *find_route(path);
    std::string id = request_id(request);
    HttpHeaders common = common_headers(request, id);
    const auto call = std::make_shared<Call>(std::move(request), std::move(responder), std::move(id), std::move(common),
                                             metrics_of(&route));
    call->quiet = route.access != Access::keyed;
    if (path.starts_with("/v1/messages")) call->protocol = Protocol::anthropic;
    switch (route.endpoint) {
      case Endpoint::root: return call->send(front_page(call->request));
      case Endpoint::live: return send_health(*call, false);
      case Endpoint::ping:
      case Endpoint::health: return send_health(*call, true);
      case Endpoint::version: return call->send_json(Json().set("version", options().version).dump());
      case Endpoint::metrics: return send_metrics(*call);
      case Endpoint::models: return call->send_json(list_models(options(), created_));
      case Endpoint::model: return answer(*call, describe_model(model_in(path), options(), created_));
      case Endpoint::chat:
      case Endpoint::completions:
      case Endpoint::messages: return generate(call, route.endpoint);
      case Endpoint::count_tokens:
        return run_text(call, [this, call] { answer(*call, count_message_tokens(call->request.body, text_)); });
      case Endpoint::embeddings:
      case Endpoint::score:
      case Endpoint::rerank: return pool(call, route.endpoint);
      case Endpoint::tokenize:
      case Endpoint::detokenize:
        return run_text(call, [this, call, endpoint = route.endpoint] {
          answer(*call, endpoint == Endpoint::tokenize ? tokenize(call->request.body, text_)
                                                       : detokenize(call->request.body, text_));
        });
    }
  }

  static void answer(Call& call, Checked<std::string> body) {
    body.ok() ? call.send_json(std::move(body).value()) : call.send(body.error());
  }

  /// The page to chat with for browsers; a few lines for everybody else.
  HttpResponse front_page(const HttpRequest& request) const {
    const bool chats = options().output == OutputKind::tokens;
    if (chats && options().web_page && wants_page(request)) return page_response(request);
    const std::string text = fmt::format(
        "Quern {} serves {}.\nAPI: /v1/models {} /tokenize /detokenize\nOperations: /health /metrics /version\n",
        options().version, options().model_names.front(),
        chats                                    ? "/v1/chat/completions /v1/completions /v1/messages"
        : options().output == OutputKind::pooled ? "/v1/embeddings /v1/score /v1/rerank"
                                                 : "/v1/score /v1/rerank");
    return {200, {{"Content-Type", "text/plain; charset=utf-8"}, {"Vary", "Accept"}}, text};
  }

  /// Seconds without progress while there is work.
  double stalled_s(const EngineStats& stats) const {
    if (live_requests_ == 0 && stats.running + stats.waiting == 0) return 0;
    return seconds_since(std::max<int64_t>(stats.last_step_us, work_since_us_));
  }

  void send_health(Call& call, bool ready) {
    const EngineStats stats = engine_.stats();
    if (stats.dead) return call.send(plain_error(503, "The engine has failed."));
    if (stalled_s(stats) > options().watchdog_timeout_s)
      return call.send(plain_error(503, "The engine makes no progress."));
    if (ready && draining_) return call.send(plain_error(503, "The server is shutting down."));
    call.send(HttpResponse{});
  }

  void send_metrics(Call& call) {
    const EngineStats stats = engine_.stats();
    call.send({200,
               {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}},
               metrics_.render(stats, stalled_s(stats), options().gauges ? options().gauges() : std::vector<Gauge>{})});
  }

  void run_text(const std::shared_ptr<Call>& call, TextPool::Task task) {
    if (pool_->try_run(std::move(task))) return;
    metrics_.count(Refusal::queue_full);
    call->send(plain_error(429, "Too many requests are waiting; try again later."));
  }

  void generate(const std::shared_ptr<Call>& call, Endpoint endpoint) {
    call->principal = *keys_.check(call->request);
    if (options().output != OutputKind::tokens) return call->send(wrong_task(options(), call->request.target));
    run_text(call, [this, call, endpoint] {
      auto parsed = endpoint == Endpoint::chat       ? parse_chat(call->request.body, text_)
                    : endpoint == Endpoint::messages ? parse_messages(call->request.body, text_)
                                                     : parse_completion(call->request.body, text_);
      if (!parsed.ok()) {
        metrics_.count(parsed.error().code == "context_length_exceeded" ? Refusal::too_long : Refusal::invalid);
        return call->send(parsed.error());
      }
      prepare(call, std::move(parsed).value());
    });
  }

  /// What the answer must look like is compiled before anything is queued.
  void prepare(const std::shared_ptr<Call>& call, Generation generation) {
    if (!generation.constraint) return open_session(call, std::move(generation));
    const auto waiting = std::make_shared<Generation>(std::move(generation));
    const bool runs = constraints_->compile(*waiting->constraint, [this, call, waiting](auto compiled) {
      if (!compiled.ok() && waiting->constraint_optional) {
        log_warning("{} calls are not watched by a grammar: {}", call->id, compiled.error().message);
        waiting->reply.options.eager = false;
        return open_session(call, std::move(*waiting));
      }
      if (!compiled.ok()) {
        metrics_.count(Refusal::invalid);
        const std::string& param = waiting->constraint_param;
        return call->send(
            ApiError{400, fmt::format("Invalid '{}': {}.", param, compiled.error().message), "invalid_value", param});
      }
      waiting->compiled = std::move(compiled).value();
      open_session(call, std::move(*waiting));
    });
    if (runs) return;
    metrics_.count(Refusal::queue_full);
    call->send(plain_error(429, "Too many grammars are being compiled; try again later."));
  }

  void open_session(const std::shared_ptr<Call>& call, Generation generation) {
    const std::string& name = generation.request_id;
    if (call->request.header("x-request-id").empty() && !name.empty() && is_printable(name)) call->rename(name);
    name_unknown_fields(*call, generation.unknown_fields);
    start_session([&](const SessionServices& services, std::function<void()> on_end) {
      return std::make_shared<Session>(call, std::move(generation), services, std::move(on_end));
    });
  }

  void pool(const std::shared_ptr<Call>& call, Endpoint endpoint) {
    call->principal = *keys_.check(call->request);
    run_text(call, [this, call, endpoint] {
      const std::string& body = call->request.body;
      auto parsed = endpoint == Endpoint::embeddings ? parse_embeddings(body, text_)
                    : endpoint == Endpoint::score    ? parse_score(body, text_)
                                                     : parse_rerank(body, text_);
      if (!parsed.ok()) {
        metrics_.count(parsed.error().code == "context_length_exceeded" ? Refusal::too_long : Refusal::invalid);
        return call->send(parsed.error());
      }
      name_unknown_fields(*call, parsed.value().unknown_fields);
      start_session([&](const SessionServices& services, std::function<void()> on_end) {
        return std::make_shared<PoolingSession>(call, std::move(parsed).value(), services, std::move(on_end));
      });
    });
  }

  static void name_unknown_fields(Call& call, const std::vector<std::string>& unknown) {
    if (unknown.empty()) return;
    const std::string names = header_list(unknown);
    log_request(LogLevel::warning, call.id, fmt::format("unknown fields are ignored: {}", names));
    call.add_header("X-Unknown-Fields", names);
  }

  /// `make` gets what sessions share, and what the new one has to call when it goes.
  template <typename Make>
  void start_session(Make&& make) {
    const SessionServices services{engine_,       metrics_,       text_,         *constraints_,
                                   next_request_, live_requests_, work_since_us_};
    auto key = std::make_shared<const LiveSession*>(nullptr);
    const std::shared_ptr<LiveSession> session =
        make(services, [self = shared_from_this(), key] { self->forget(*key); });
    *key = session.get();
    sessions_.with([&](Sessions& sessions) { sessions.emplace(session.get(), session); });
    session->start();
  }

  void forget(const LiveSession* session) {
    sessions_.with([&](Sessions& sessions) { sessions.erase(session); });
    if (draining_) session_ended_.try_send(0);
  }

  TokenService& engine_;
  const int64_t created_;
  const Keys keys_;
  Metrics metrics_;
  TextModel text_;
  std::vector<RouteMetrics*> route_metrics_;
  RouteMetrics* unknown_route_ = nullptr;
  std::atomic<uint64_t> next_request_ = 1;
  std::atomic<int32_t> live_requests_ = 0;
  std::atomic<int64_t> work_since_us_ = 0;
  std::atomic<bool> draining_ = false;
  Guarded<Sessions> sessions_;
  Channel<int> session_ended_;
  std::unique_ptr<TextPool> pool_;
  std::unique_ptr<Constraints> constraints_;
  std::unique_ptr<HttpServer> http_;
};

Server::Server(ServerOptions options, TokenService& engine, std::shared_ptr<const Tokenizer> tokenizer,
               std::shared_ptr<const ChatTemplate> chat_template)
    : core_(std::make_shared<Core>(std::move(options), engine, std::move(tokenizer), std::move(chat_template))) {}

Server::~Server() { core_->stop(); }

Status Server::start() { return core_->start(); }

int Server::port() const { return core_->port(); }

bool Server::drain(std::chrono::steady_clock::time_point deadline) { return core_->drain(deadline); }

}  // namespace quern
