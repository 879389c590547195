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

/// The name in a body; "name" is how older clients call it.
Checked<std::string> model_of(const Json& body) {
  for (const std::string_view key : {"model", "name"}) {
    if (const auto name = body.string(key); name && !name->empty()) return *name;
  }
  return ApiError{400, "model is required", "missing_required_parameter", "model"};
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
    : library_(options.library),
      may_change_(options.allow_model_management),
      served_(std::move(served)),
      started_us_(unix_time_us()),
      quick_(1, kMostWaiting),
      pulls_(kPullsAtATime, kMostWaiting) {}

OllamaModels::~OllamaModels() { stopping_ = true; }

void OllamaModels::answer(const std::shared_ptr<Call>& call, std::string_view path) {
  path.remove_prefix(std::string_view("/api/").size());
  if (path == "tags") return run(quick_, call, [](const OllamaModels& self, Call& one) { self.tags(one); });
  if (path == "ps") return running(*call);
  if (path == "show") return run(quick_, call, [](const OllamaModels& self, Call& one) { self.show(one); });
  if (path.starts_with("blobs/")) {
    return call->send(plain_error(404, "this server keeps no blobs: its models are files on its own disk"));
  }
  if (path == "push" || path == "create") {
    return call->send(
        ApiError{400,
                 fmt::format("/api/{} is not supported: put the files where the server can read them, and "
                             "start it with `quern serve PATH`",
                             path),
                 "unsupported_value"});
  }
  if (!may_change(*call)) return;
  if (path == "pull") return pull(call);
  if (path == "copy") return run(quick_, call, [](const OllamaModels& self, Call& one) { self.copy(one); });
  run(quick_, call, [](const OllamaModels& self, Call& one) { self.remove(one); });
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

void OllamaModels::run(TextPool& pool, const std::shared_ptr<Call>& call, Task task) {
  if (pool.try_run([this, call, task = std::move(task)] { task(*this, *call); })) return;
  call->send(plain_error(429, "Too many requests are waiting; try again later."));
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

void OllamaModels::show(Call& call) const {
  auto body = parse_body(call.request.body);
  if (!body.ok()) return call.send(body.error());
  auto name = model_of(body.value());
  if (!name.ok()) return call.send(name.error());
  for (const ServedCard& card : served_()) {
    if (find_served(name.value(), card.names) != nullptr)
      return call.send_json(show_json(name.value(), card.details, card.parameters, started_us_).dump());
  }
  if (library_ == nullptr) return call.send(not_found(name.value()));
  auto stored = library_->show(name.value());
  if (!stored.ok()) return call.send(not_found(name.value()));
  call.send_json(show_json(name.value(), *stored, "", started_us_).dump());
}

void OllamaModels::copy(Call& call) const {
  auto body = parse_body(call.request.body);
  if (!body.ok()) return call.send(body.error());
  const std::string source = body.value().string("source").value_or("");
  const std::string destination = body.value().string("destination").value_or("");
  if (source.empty() || destination.empty())
    return call.send(ApiError{400, "source and destination are required", "missing_required_parameter"});
  if (!library_->find(source).ok()) return call.send(not_found(source));
  const Status copied = library_->copy(source, destination);
  copied.ok() ? send_nothing(call) : call.send(ApiError{400, copied.error().message, "invalid_value"});
}

void OllamaModels::remove(Call& call) const {
  auto body = parse_body(call.request.body);
  if (!body.ok()) return call.send(body.error());
  auto name = model_of(body.value());
  if (!name.ok()) return call.send(name.error());
  if (!library_->find(name.value()).ok()) return call.send(not_found(name.value()));
  const Status removed = library_->remove(name.value());
  removed.ok() ? send_nothing(call) : call.send(ApiError{400, removed.error().message, "invalid_value"});
}

void OllamaModels::pull(const std::shared_ptr<Call>& call) {
  auto body = parse_body(call->request.body);
  if (!body.ok()) return call->send(body.error());
  auto name = model_of(body.value());
  if (!name.ok()) return call->send(name.error());
  const bool stream = body.value().boolean("stream").value_or(true);
  const bool runs =
      pulls_.try_run([this, call, name = std::move(name).value(), stream] { run_pull(call, name, stream); });
  if (!runs) call->send(plain_error(429, "Too many pulls are waiting; try again later."));
}

/// A client that goes away ends its pull; what has come stays for the next one.
void OllamaModels::run_pull(const std::shared_ptr<Call>& call, const std::string& name, bool stream) {
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  call->responder->on_disconnect([gone] { *gone = true; });
  if (stream) {
    call->begin_events();
    call->responder->write(status_line("pulling manifest"));
  }
  const auto pulled = library_->pull(name, [&](const PullProgress& progress) {
    if (stream) call->responder->write(progress_line(progress));
    return !*gone && !stopping_;
  });
  if (!stream) {
    return pulled.ok() ? call->send_json(Json().set("status", "success").dump())
                       : call->send(ApiError{400, pulled.error().message, "invalid_value", "model"});
  }
  call->responder->write(pulled.ok() ? status_line("success")
                                     : Json().set("error", pulled.error().message).dump() + '\n');
  call->responder->end();
  call->end_events();
}

}  // namespace quern
