#include "server/server.h"

#include <algorithm>
#include <atomic>
#include <fmt/format.h>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/channel.h"
#include "base/event.h"
#include "base/guarded.h"
#include "base/random.h"
#include "server/access/gate.h"
#include "server/anthropic/messages.h"
#include "server/call.h"
#include "server/llama/requests.h"
#include "server/metrics/http.h"
#include "server/metrics/page.h"
#include "server/models/fixed_host.h"
#include "server/models/keeper.h"
#include "server/models/model_metrics.h"
#include "server/ollama/embeddings.h"
#include "server/ollama/models.h"
#include "server/ollama/names.h"
#include "server/ollama/requests.h"
#include "server/openai/generation.h"
#include "server/openai/model_field.h"
#include "server/openai/pooling.h"
#include "server/openai/tokens.h"
#include "server/openapi/openapi.h"
#include "server/page.h"
#include "server/pooling_session.h"
#include "server/responses/responses.h"
#include "server/routes.h"
#include "server/session.h"
#include "server/text_pool.h"

namespace quern {
namespace {

constexpr size_t kSmallBody = 4096;
constexpr size_t kStoredBytes = size_t{128} << 20;  // of answers that clients may come back to
constexpr size_t kStoredResponses = 10'000;
constexpr std::chrono::milliseconds kFlushTime{2'000};
constexpr std::string_view kLoading = "The model is being loaded; try again later.";

std::vector<std::string> all_names(const std::vector<ModelCard>& cards) {
  std::vector<std::string> names;
  for (const ModelCard& card : cards) names.insert(names.end(), card.names.begin(), card.names.end());
  return names;
}

}  // namespace

class Server::Core final : public std::enable_shared_from_this<Server::Core> {
 public:
  Core(ServerOptions options, const KeeperOptions& keeping, std::vector<ModelCard> cards, ModelHost& host)
      : options_(std::move(options)),
        created_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                     .count()),
        several_(cards.size() > 1),
        names_(all_names(cards)),
        pool_(std::max(1, options_.text_threads), static_cast<size_t>(options_.max_queued_texts)),
        keeper_(keeping, std::move(cards), host),
        gate_(options_, [this](Refusal reason) { keeper_.first_metrics().count(reason); }) {
    for (const Route& route : kRoutes) {
      const std::string_view method = route.methods.substr(0, route.methods.find(','));
      const bool watches = route.path != "/" && (route.access == Access::open || route.access == Access::metrics);
      route_metrics_.push_back(&http_metrics_.add_route(route.path, method, !watches));
    }
    unknown_route_ = &http_metrics_.add_route("none", "GET");
  }

  Status listen() {
    ollama_models_ = std::make_unique<OllamaModels>(options_, [this] { return served_cards(); });
    HttpServerOptions http = options_.http;
    http.check_head = [this](const HttpRequest& head) {
      if (options_.root_path.empty()) return check_head(head);
      HttpRequest below = head;
      below.target = below_root(std::move(below.target));
      return check_head(below);
    };
    http.refusal = [](int status, std::string_view message) {
      HttpResponse response = error_response(plain_error(status, std::string(message)));
      response.headers.emplace_back("X-Request-Id", random_hex());
      return response;
    };
    ASSIGN_OR_RETURN(
        http_, HttpServer::start(std::move(http), [this](HttpRequest request, std::shared_ptr<Responder> responder) {
          request.target = below_root(std::move(request.target));
          handle(std::move(request), std::move(responder));
        }));
    return {};
  }

  Status start(const std::function<void()>& before) {
    if (!http_) TRY(listen());
    TRY(keeper_.start());
    if (before) before();
    ready_ = true;
    return {};
  }

  /// Sessions that an engine of somebody else still knows keep this object; the threads are gone.
  void stop() {
    http_.reset();
    ollama_models_.reset();
    keeper_.stop_accepting();
    pool_.stop();
    keeper_.stop();
  }

  int port() const { return http_->port(); }
  void set_keys(std::vector<ApiKey> keys) { gate_.set_keys(std::move(keys)); }

  bool drain(std::chrono::steady_clock::time_point deadline, std::chrono::steady_clock::time_point open_until) {
    gate_.close();
    keeper_.stop_accepting();
    while (session_count() > 0) {
      if (!session_ended_.receive_until(deadline)) break;
    }
    while (session_ended_.receive_until(open_until)) {
    }
    const bool all = session_count() == 0;
    if (!all) abort_sessions(plain_error(503, "The server is shutting down."));
    http_->finish(kFlushTime);
    return all;
  }

 private:
  using ModelUse = std::function<void(const ModelRef&)>;
  using Sessions = std::unordered_map<const LiveSession*, std::weak_ptr<LiveSession>>;

  size_t session_count() {
    return sessions_.with([](Sessions& sessions) { return sessions.size(); });
  }

  void abort_sessions(const ApiError& error) {
    std::vector<std::shared_ptr<LiveSession>> rest;
    sessions_.with([&](Sessions& sessions) {
      for (auto& [key, weak] : sessions) {
        if (auto session = weak.lock()) rest.push_back(std::move(session));
      }
    });
    for (const auto& session : rest) session->abort(error);
  }

  std::vector<ServedCard> served_cards() const {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    std::vector<ServedCard> cards;
    for (const ModelState& state : keeper_.states()) {
      ServedCard& card = cards.emplace_back(state.model ? card_of(state.model->text) : ServedCard{});
      card.names = state.card.names;
      card.loaded = state.model != nullptr;
      card.context_length = state.card.max_model_len;
      if (state.expires_in_s)
        card.expires_us = std::chrono::duration_cast<std::chrono::microseconds>(now).count() +
                          static_cast<int64_t>(*state.expires_in_s * 1e6);
    }
    return cards;
  }

  /// The target without --root-path, which proxies may take away or leave.
  std::string below_root(std::string target) const {
    const std::string& root = options_.root_path;
    if (root.empty() || !target.starts_with(root)) return target;
    const std::string_view rest = std::string_view(target).substr(root.size());
    if (!rest.empty() && rest.front() != '/' && rest.front() != '?') return target;
    return rest.starts_with('/') ? std::string(rest) : fmt::format("/{}", rest);
  }

  /// Everything that can be refused before the body is read.
  std::optional<HttpResponse> check_head(const HttpRequest& head) {
    std::optional<HttpResponse> answer = gate_.judge(head);
    if (!answer) return answer;
    std::string id = request_id(head);
    const std::string path = path_of(head.target);
    const Route* route = find_route(path);
    RouteMetrics& metrics = metrics_of(route);
    metrics.by_status[static_cast<size_t>(answer->status / 100)].fetch_add(1, std::memory_order_relaxed);
    log_answer(LogLevel::info, id, head, answer->status);
    for (auto& header : gate_.common_headers(head, std::move(id))) answer->headers.push_back(std::move(header));
    return answer;
  }

  RouteMetrics& metrics_of(const Route* route) {
    return route == nullptr ? *unknown_route_ : *route_metrics_[static_cast<size_t>(route - kRoutes)];
  }

  void handle(HttpRequest request, std::shared_ptr<Responder> responder) {
    const std::string path = path_of(request.target);
    const Route& route = *find_route(path);
    std::string id = request_id(request);
    HttpHeaders common = gate_.common_headers(request, id);
    const auto call = std::make_shared<Call>(std::move(request), std::move(responder), std::move(id), std::move(common),
                                             metrics_of(&route));
    call->protocol = route.protocol;
    call->quiet = !needs_key(route.access);
    if (!admit(*call, route)) return;
    switch (route.endpoint) {
      case Endpoint::root: return call->send(front_page(call->request));
      case Endpoint::live: return send_health(*call, false);
      case Endpoint::ping:
      case Endpoint::health: return send_health(*call, true);
      case Endpoint::version: return call->send_json(version_object().dump());
      case Endpoint::metrics: return send_metrics(*call);
      case Endpoint::models: return call->send_json(list_models(keeper_.states(), created_));
      case Endpoint::model: return answer(*call, describe_model(model_in(path), keeper_.states(), created_));
      case Endpoint::chat:
      case Endpoint::completions:
      case Endpoint::messages:
      case Endpoint::responses:
      case Endpoint::ollama_chat:
      case Endpoint::ollama_generate:
      case Endpoint::llama_completion:
      case Endpoint::infill: return generate(call, route.endpoint);
      case Endpoint::stored_response:
        return answer(*call, stored_response(call->request, path, shelf_of(call->principal)));
      case Endpoint::embeddings:
      case Endpoint::score:
      case Endpoint::rerank:
      case Endpoint::ollama_embed:
      case Endpoint::ollama_embeddings:
      case Endpoint::llama_embedding: return pool(call, route.endpoint);
      case Endpoint::count_tokens:
      case Endpoint::response_tokens:
      case Endpoint::tokenize:
      case Endpoint::detokenize:
      case Endpoint::openapi:
      case Endpoint::tokenizer_info:
      case Endpoint::apply_template:
      case Endpoint::props:
      case Endpoint::slots: return tell(call, route.endpoint);
      case Endpoint::lora_adapters: return call->send_json("[]");
      case Endpoint::ollama_version: return call->send_json(Json().set("version", ollama_version).dump());
      case Endpoint::ollama_tags:
      case Endpoint::ollama_running:
      case Endpoint::ollama_show:
      case Endpoint::ollama_pull:
      case Endpoint::ollama_copy:
      case Endpoint::ollama_delete:
      case Endpoint::ollama_absent: return ollama_models_->answer(call, route.endpoint, path);
      case Endpoint::no_adapters: return call->send(no_adapters());
      case Endpoint::sleep:
      case Endpoint::wake_up:
      case Endpoint::is_sleeping:
      case Endpoint::reset_prefix_cache: return manage(call, route.endpoint);
    }
  }

  void manage(const std::shared_ptr<Call>& call, Endpoint endpoint) {
    switch (endpoint) {
      case Endpoint::sleep: return sleep(call);
      case Endpoint::wake_up: return keeper_.wake_up([call] { call->send(HttpResponse{}); });
      case Endpoint::reset_prefix_cache: return forget_prefixes(*call);
      default: return call->send_json(Json().set("is_sleeping", keeper_.sleep_level() > 0).dump());
    }
  }

  static ApiError no_adapters() {
    return {400, "This server has no LoRA adapters yet.", "unsupported_parameter", "lora_name"};
  }

  /// Finds out who asks and takes what their key still has, or answers why not: false.
  bool admit(Call& call, const Route& route) {
    if (needs_key(route.access)) {
      std::optional<Principal> principal = gate_.principal(call.request);
      if (!principal) return call.send(gate_.unauthorized(call.request)), false;
      call.principal = std::move(*principal);
      if (!ready_) return call.send(plain_error(503, std::string(kLoading))), false;
    }
    return !route.generates || call.admit();
  }

  ResponseShelf shelf_of(const Principal& principal) const { return {responses_, principal.salt}; }

  /// What a model's text side knows.
  void tell(const std::shared_ptr<Call>& call, Endpoint endpoint) {
    with_model(call, [this, call, endpoint](const ModelRef& model) {
      const std::string& body = call->request.body;
      switch (endpoint) {
        case Endpoint::count_tokens: return answer_read(*call, model->text, count_message_tokens);
        case Endpoint::response_tokens: {
          std::vector<std::string> unknown;
          auto counted = count_response_tokens(body, model->text, shelf_of(call->principal), unknown);
          call->name_unknown_fields(unknown);
          return answer(*call, std::move(counted));
        }
        case Endpoint::tokenize: return answer_read(*call, model->text, tokenize);
        case Endpoint::detokenize: return answer_read(*call, model->text, detokenize);
        case Endpoint::openapi: return call->send_json(openapi_document(model->text));
        case Endpoint::tokenizer_info: return call->send_json(tokenizer_info(model->text));
        case Endpoint::apply_template: return answer_read(*call, model->text, apply_template);
        case Endpoint::props: return call->send_json(llama_props(model->text));
        default: return answer(*call, llama_slots(call->request.target, model->text, model->engine->stats()));
      }
    });
  }

  /// The answer of a reader; what it did not look at is named, or refused.
  static void answer_read(Call& call, const TextModel& model,
                          Checked<std::string> (*read)(Fields& fields, const TextModel& model)) {
    auto json = parse_body(call.request.body);
    if (!json.ok()) return call.send(json.error());
    const Json given = std::move(json).value();
    Fields fields(given);
    Checked<std::string> body = read(fields, model);
    if (!body.ok()) return call.send(body.error());
    std::vector<std::string> unknown;
    read_unknown(fields, model.options, unknown);
    if (fields.failed()) return call.send(*fields.error());
    call.name_unknown_fields(unknown);
    call.send_json(std::move(body).value());
  }

  static void answer(Call& call, Checked<std::string> body) {
    body.ok() ? call.send_json(std::move(body).value()) : call.send(body.error());
  }

  /// Answered when the memory is free. Answers that run are finished first, or cut off with mode=abort.
  void sleep(const std::shared_ptr<Call>& call) {
    const std::string_view level = query_value(call->request.target, "level");
    const std::string_view mode = query_value(call->request.target, "mode");
    if (!level.empty() && level != "1" && level != "2")
      return call->send({400, "Invalid 'level': say 1 or 2.", "invalid_value", "level"});
    if (!mode.empty() && mode != "wait" && mode != "abort")
      return call->send({400, "Invalid 'mode': say wait or abort.", "invalid_value", "mode"});
    keeper_.sleep(level == "2" ? 2 : 1, [call] { call->send(HttpResponse{}); });
    if (mode == "abort") abort_sessions(plain_error(503, "The server was sent to sleep."));
  }

  /// Of all models that are loaded.
  void forget_prefixes(Call& call) {
    for (const ModelState& state : keeper_.states()) {
      if (state.model) state.model->engine->reset_prefix_cache();
    }
    call.send(HttpResponse{});
  }

  /// The page to chat with for browsers; a few lines for everybody else.
  HttpResponse front_page(const HttpRequest& request) const {
    if (options_.ollama_api && request.header("user-agent").starts_with("ollama"))
      return {200, {{"Content-Type", "text/plain; charset=utf-8"}}, "Ollama is running"};
    std::set<std::string_view> routes;
    std::vector<std::string> names;
    for (const ModelState& state : keeper_.states()) {
      names.push_back(state.card.names.front());
      if (state.card.output == OutputKind::tokens)
        routes.insert("/v1/chat/completions /v1/completions /v1/responses /v1/messages");
      if (state.card.output == OutputKind::pooled) routes.insert("/v1/embeddings");
      if (state.card.output != OutputKind::tokens) routes.insert("/v1/score /v1/rerank");
    }
    const bool chats = routes.size() != 0 && routes.begin()->starts_with("/v1/chat");
    if (chats && options_.web_page && wants_page(request)) return page_response(request);
    const std::string text = fmt::format(
        "Quern {} serves {}.\nAPI: /v1/models {} /tokenize /detokenize\nOperations: /health /metrics /version\n",
        options_.version, fmt::join(names, ", "), fmt::join(routes, " "));
    return {200, {{"Content-Type", "text/plain; charset=utf-8"}, {"Vary", "Accept"}}, text};
  }

  /// Two builds of one version differ in their commit.
  Json version_object() const {
    Json object = Json().set("version", options_.version);
    if (!options_.build.empty()) object.set("build", options_.build);
    return object;
  }

  void send_health(Call& call, bool ready) {
    for (const ModelState& state : keeper_.states()) {
      if (!state.model) continue;
      if (state.stats.dead) return call.send(plain_error(503, "The engine has failed."));
      if (state.model->stalled_s(state.stats) > options_.watchdog_timeout_s)
        return call.send(plain_error(503, "The engine makes no progress."));
    }
    if (ready && !ready_) return call.send(plain_error(503, std::string(kLoading)));
    if (ready && gate_.closed()) return call.send(plain_error(503, "The server is shutting down."));
    call.send_json(R"({"status":"ok"})");
  }

  void send_metrics(Call& call) {
    MetricsPage page;
    write_models(page, keeper_);
    http_metrics_.write(page);
    call.send({200, {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}}, page.text()});
  }

  /// Runs `use` on a text thread with the model that the body of the request names, once it is loaded.
  void with_model(const std::shared_ptr<Call>& call, ModelUse use) {
    run_text(call, [this, call, use = std::move(use)]() mutable {
      std::string name = several_ ? model_field(call->request.body) : "";
      const std::string* served = call->protocol == Protocol::ollama ? find_served(name, names_) : nullptr;
      with_named_model(call, served == nullptr ? name : *served, std::move(use));
    });
  }

  /// The same for a name found elsewhere; on a text thread. "" is the first model.
  void with_named_model(const std::shared_ptr<Call>& call, const std::string& name, ModelUse use) {
    if (const ModelRef model = keeper_.loaded(name)) return use(model);
    keeper_.want(name, deadline_of(*call, options_), [this, call, use = std::move(use)](Checked<ModelRef> model) {
      if (!model.ok()) return call->send(model.error());
      run_text(call, [use, loaded = std::move(model).value()] { use(loaded); });
    });
  }

  void run_text(const std::shared_ptr<Call>& call, TextPool::Task task) {
    if (pool_.try_run(std::move(task))) return;
    keeper_.first_metrics().count(Refusal::queue_full);
    call->send(plain_error(429, "Too many requests are waiting; try again later."));
  }

  void generate(const std::shared_ptr<Call>& call, Endpoint endpoint) {
    if (generate_at_once(call, endpoint)) return;
    with_model(call, [this, call, endpoint](const ModelRef& model) {
      if (model->options().output != OutputKind::tokens)
        return call->send(wrong_task(model->options(), call->request.target));
      auto parsed = parse_generation(*call, endpoint, model->text);
      if (!parsed.ok()) return refuse(*call, *model, parsed.error());
      keep(*model, parsed.value().keep_alive_s);
      prepare(call, model, std::move(parsed).value());
    });
  }

  /// On the connection's own thread, what surely takes no longer than handing it to another one and back: small bodies
  /// for a tokenizer without regular expressions; a template that is not done soon starts again in the pool.
  bool generate_at_once(const std::shared_ptr<Call>& call, Endpoint endpoint) {
    const bool plain = endpoint == Endpoint::chat || endpoint == Endpoint::completions;
    if (several_ || !plain || call->request.body.size() > kSmallBody) return false;
    const ModelRef model = keeper_.loaded("");
    if (!model || model->options().output != OutputKind::tokens || !model->text.tokenizer->is_linear()) return false;
    auto parsed = parse_generation(*call, endpoint, model->brief);
    if (parsed.ok()) prepare(call, model, std::move(parsed).value());
    return parsed.ok();
  }

  Checked<Generation> parse_generation(const Call& call, Endpoint endpoint, const TextModel& text) const {
    const std::string& body = call.request.body;
    switch (endpoint) {
      case Endpoint::chat: return parse_chat(body, text);
      case Endpoint::messages: return parse_messages(body, text);
      case Endpoint::responses: return parse_responses(body, text, shelf_of(call.principal));
      case Endpoint::ollama_chat: return parse_ollama_chat(body, text);
      case Endpoint::ollama_generate: return parse_ollama_generate(body, text);
      case Endpoint::llama_completion: return parse_llama_completion(body, text);
      case Endpoint::infill: return parse_infill(body, text);
      default: return parse_completion(body, text);
    }
  }

  static Checked<PoolingCall> parse_pooling(const std::string& body, Endpoint endpoint, const TextModel& text) {
    switch (endpoint) {
      case Endpoint::score: return parse_score(body, text);
      case Endpoint::rerank: return parse_rerank(body, text);
      case Endpoint::ollama_embed: return parse_ollama_embed(body, text);
      case Endpoint::ollama_embeddings: return parse_ollama_embeddings(body, text);
      case Endpoint::llama_embedding: return parse_llama_embedding(body, text);
      default: return parse_embeddings(body, text);
    }
  }

  void keep(const ServedModel& model, std::optional<double> seconds) {
    if (seconds) keeper_.set_keep_alive(model.options().model_names.front(), *seconds);
  }

  static void refuse(Call& call, ServedModel& model, const ApiError& error) {
    model.metrics.count(error.code == "context_length_exceeded" ? Refusal::too_long : Refusal::invalid);
    call.send(error);
  }

  /// What the answer must look like is compiled before anything is queued.
  void prepare(const std::shared_ptr<Call>& call, const ModelRef& model, Generation generation) {
    if (!generation.answer.empty()) return call->send_json(std::move(generation.answer));
    if (!generation.constraint) return open_session(call, model, std::move(generation));
    const auto waiting = std::make_shared<Generation>(std::move(generation));
    const bool runs = model->constraints.compile(*waiting->constraint, [this, call, model, waiting](auto compiled) {
      if (!compiled.ok() && waiting->constraint_optional) {
        log_warning("{} calls are not watched by a grammar: {}", call->id, compiled.error().message);
        waiting->reply.options.eager = false;
        return open_session(call, model, std::move(*waiting));
      }
      if (!compiled.ok()) {
        const std::string& param = waiting->constraint_param;
        return refuse(*call, *model,
                      {400, fmt::format("Invalid '{}': {}.", param, compiled.error().message), "invalid_value", param});
      }
      waiting->compiled = std::move(compiled).value();
      open_session(call, model, std::move(*waiting));
    });
    if (runs) return;
    model->metrics.count(Refusal::queue_full);
    call->send(plain_error(429, "Too many grammars are being compiled; try again later."));
  }

  void open_session(const std::shared_ptr<Call>& call, const ModelRef& model, Generation generation) {
    const std::string& name = generation.request_id;
    if (call->request.header("x-request-id").empty() && !name.empty() && is_printable(name)) call->rename(name);
    call->name_unknown_fields(generation.unknown_fields);
    start_session<Session>(call, model, std::move(generation));
  }

  void pool(const std::shared_ptr<Call>& call, Endpoint endpoint) {
    with_model(call, [this, call, endpoint](const ModelRef& model) {
      auto parsed = parse_pooling(call->request.body, endpoint, model->text);
      if (!parsed.ok()) return refuse(*call, *model, parsed.error());
      keep(*model, parsed.value().keep_alive_s);
      if (!parsed.value().answer.empty()) return call->send_json(std::move(parsed.value().answer));
      call->name_unknown_fields(parsed.value().unknown_fields);
      start_session<PoolingSession>(call, model, std::move(parsed).value());
    });
  }

  /// `Kind` is Session or PoolingSession, `Asked` what it answers.
  template <typename Kind, typename Asked>
  void start_session(const std::shared_ptr<Call>& call, const ModelRef& model, Asked asked) {
    auto key = std::make_shared<const LiveSession*>(nullptr);
    const std::shared_ptr<LiveSession> session =
        std::make_shared<Kind>(call, std::move(asked), model, [self = shared_from_this(), key] { self->forget(*key); });
    *key = session.get();
    sessions_.with([&](Sessions& sessions) { sessions.emplace(session.get(), session); });
    session->start();
  }

  void forget(const LiveSession* session) {
    sessions_.with([&](Sessions& sessions) { sessions.erase(session); });
    if (gate_.closed()) session_ended_.try_send(0);
  }

  const ServerOptions options_;
  const int64_t created_;
  const bool several_;
  const std::vector<std::string> names_;  // of all models
  TextPool pool_;
  ModelKeeper keeper_;
  Gate gate_;
  HttpMetrics http_metrics_;
  std::vector<RouteMetrics*> route_metrics_;
  RouteMetrics* unknown_route_ = nullptr;
  std::shared_ptr<ResponseStore> responses_ = std::make_shared<ResponseStore>(kStoredBytes, kStoredResponses);
  Guarded<Sessions> sessions_;
  Channel<int> session_ended_;
  std::atomic<bool> ready_ = false;  // what is to be there at start is there
  std::unique_ptr<OllamaModels> ollama_models_;
  std::unique_ptr<HttpServer> http_;
};

Server::Server(ServerOptions options, TokenService& engine, std::shared_ptr<const Tokenizer> tokenizer,
               std::shared_ptr<const ChatTemplate> chat_template) {
  auto host = std::make_unique<FixedHost>(options, engine, std::move(tokenizer), std::move(chat_template));
  KeeperOptions keeping;
  keeping.block_tokens = options.block_tokens;
  core_ = std::make_shared<Core>(std::move(options), keeping, std::vector{host->card()}, *host);
  host_ = std::move(host);
}

Server::Server(ServerOptions options, const KeeperOptions& keeping, std::vector<ModelCard> cards, ModelHost& host)
    : core_(std::make_shared<Core>(std::move(options), keeping, std::move(cards), host)) {}

Server::~Server() { core_->stop(); }

void Server::set_keys(std::vector<ApiKey> keys) { core_->set_keys(std::move(keys)); }

Status Server::listen() { return core_->listen(); }

Status Server::start(const std::function<void()>& before) { return core_->start(before); }

int Server::port() const { return core_->port(); }

bool Server::drain(std::chrono::steady_clock::time_point deadline, std::chrono::steady_clock::time_point open_until) {
  return core_->drain(deadline, open_until);
}

}  // namespace quern
