#include "server/ollama/models.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "server/llama/peer.h"
#include "server/ollama/cards.h"
#include "server/ollama/names.h"

namespace quern {
namespace {

constexpr int kPullsAtATime = 2;
constexpr size_t kMostWaiting = 64;

ApiError not_found(std::string_view name) {
  return {404, fmt::format("model '{}' not found", name.substr(0, 256)), "model_not_found", "model"};
}

std::string status_line(std::string_view status) { return Json().set("status", std::string(status)).dump() + '\n'; }

std::string progress_line(const PullProgress& progress) {
  const std::string_view digest = progress.digest.empty() ? progress.file : progress.digest;
  const std::string_view shown = digest.starts_with("sha256:") ? digest.substr(7, 12) : progress.file;
  Json line;
  line.set("status", fmt::format("pulling {}", shown)).set("digest", std::string(digest));
  return line.set("total", progress.total).set("completed", progress.completed).dump() + '\n';
}

void send_nothing(Call& call) { call.send(HttpResponse{200, {}, ""}); }

}  // namespace

OllamaModels::OllamaModels(const ServerOptions& options, Served served)
    : options_(options),
      library_(options.library),
      may_change_(options.allow_model_management),
      served_(std::move(served)),
      started_us_(unix_time_us()),
      quick_(1, kMostWaiting),
      pulls_(kPullsAtATime, kMostWaiting) {}

OllamaModels::~OllamaModels() { stopping_ = true; }

void OllamaModels::answer(const std::shared_ptr<Call>& call, Endpoint endpoint, std::string_view path) {
  const bool changes =
      endpoint == Endpoint::ollama_pull || endpoint == Endpoint::ollama_copy || endpoint == Endpoint::ollama_delete;
  if (changes && !may_change(*call)) return;
  switch (endpoint) {
    case Endpoint::ollama_tags: return run(call, [](const OllamaModels& self, Call& one) { self.tags(one); });
    case Endpoint::ollama_running: return running(*call);
    case Endpoint::ollama_show: return run(call, read_ollama_show, &OllamaModels::show);
    case Endpoint::ollama_pull: return pull(call);
    case Endpoint::ollama_copy: return run(call, read_ollama_copy, &OllamaModels::copy);
    case Endpoint::ollama_delete: return run(call, read_ollama_delete, &OllamaModels::remove);
    default: break;
  }
  if (path.starts_with("/api/blobs/"))
    return call->send(plain_error(404, "this server keeps no blobs: its models are files on its own disk"));
  call->send(ApiError{400,
                      fmt::format("{} is not supported: put the files where the server can read them, and start it "
                                  "with `quern serve PATH`",
                                  path),
                      "unsupported_value"});
}

bool OllamaModels::may_change(Call& call) const {
  if (!may_change_) {
    call.send(
        plain_error(403, "this server does not let clients change its models: start it with --allow-model-management"));
  } else if (library_ == nullptr) {
    call.send(plain_error(403, "this server has no model library to change"));
  }
  return may_change_ && library_ != nullptr;
}

void OllamaModels::run(const std::shared_ptr<Call>& call, Task task) {
  if (quick_.try_run([this, call, task = std::move(task)] { task(*this, *call); })) return;
  call->send(plain_error(429, "Too many requests are waiting; try again later."));
}

void OllamaModels::run(const std::shared_ptr<Call>& call, Reader reader, Asked asked) {
  auto request = read(*call, reader);
  if (!request.ok()) return call->send(request.error());
  run(call, [request = std::move(request).value(), asked](const OllamaModels& self, Call& one) {
    (self.*asked)(one, request);
  });
}

Checked<OllamaModelRequest> OllamaModels::read(Call& call, Reader reader) const {
  ASSIGN_OR_RETURN(const Json body, parse_body(call.request.body));
  Fields fields(body);
  Request request = reader(fields, options_);
  if (fields.failed()) return *fields.error();
  call.name_unknown_fields(request.unknown_fields);
  return request;
}

void OllamaModels::tags(Call& call) const {
  const std::vector<ServedCard> served = served_();
  Json models(Json::Array{});
  std::vector<std::string> named;
  for (const ServedCard& card : served) {
    for (const std::string& name : card.names) {
      models.items().push_back(tag_json(name, card.details.model, card.details.capabilities, started_us_));
      named.push_back(name);
    }
  }
  if (library_ != nullptr) {
    auto stored = library_->list();
    if (!stored.ok()) return call.send(plain_error(500, stored.error().message));
    for (const StoredModel& model : *stored) {
      if (find_served(model.name, named) == nullptr)
        models.items().push_back(tag_json(model.name, model, {}, started_us_));
    }
  }
  call.send_json(Json().set("models", std::move(models)).dump());
}

void OllamaModels::running(Call& call) const {
  Json models(Json::Array{});
  for (const ServedCard& card : served_()) {
    if (card.loaded) models.items().push_back(running_json(card.names.front(), card));
  }
  call.send_json(Json().set("models", std::move(models)).dump());
}

void OllamaModels::show(Call& call, const Request& request) const {
  for (const ServedCard& card : served_()) {
    if (find_served(request.model, card.names) != nullptr)
      return call.send_json(show_json(request.model, card.details, card.parameters, started_us_).dump());
  }
  if (library_ == nullptr) return call.send(not_found(request.model));
  auto stored = library_->show(request.model);
  if (!stored.ok()) return call.send(not_found(request.model));
  call.send_json(show_json(request.model, *stored, "", started_us_).dump());
}

void OllamaModels::copy(Call& call, const Request& request) const {
  if (!library_->find(request.model).ok()) return call.send(not_found(request.model));
  const Status copied = library_->copy(request.model, request.destination);
  copied.ok() ? send_nothing(call) : call.send(ApiError{400, copied.error().message, "invalid_value"});
}

void OllamaModels::remove(Call& call, const Request& request) const {
  if (!library_->find(request.model).ok()) return call.send(not_found(request.model));
  const Status removed = library_->remove(request.model);
  removed.ok() ? send_nothing(call) : call.send(ApiError{400, removed.error().message, "invalid_value"});
}

void OllamaModels::pull(const std::shared_ptr<Call>& call) {
  auto request = read(*call, read_ollama_pull);
  if (!request.ok()) return call->send(request.error());
  const bool runs = pulls_.try_run([this, call, request = std::move(request).value()] { run_pull(call, request); });
  if (!runs) call->send(plain_error(429, "Too many pulls are waiting; try again later."));
}

/// A client that goes away ends its pull; what has come stays for the next one.
void OllamaModels::run_pull(const std::shared_ptr<Call>& call, const Request& request) {
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  call->responder->on_disconnect([gone] { *gone = true; });
  if (request.stream) {
    call->begin_events();
    call->responder->write(status_line("pulling manifest"));
  }
  const auto pulled = library_->pull(request.model, [&](const PullProgress& progress) {
    if (request.stream) call->responder->write(progress_line(progress));
    return !*gone && !stopping_;
  });
  if (!request.stream) {
    return pulled.ok() ? call->send_json(Json().set("status", "success").dump())
                       : call->send(ApiError{400, pulled.error().message, "invalid_value", "model"});
  }
  call->responder->write(pulled.ok() ? status_line("success")
                                     : Json().set("error", pulled.error().message).dump() + '\n');
  call->responder->end();
  call->end_events();
}

}  // namespace quern
