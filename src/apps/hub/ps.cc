// quern ps and stop: the models that a running server has in memory.
#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>

#include "apps/commands.h"
#include "apps/hub/pull_bar.h"
#include "base/flags.h"
#include "base/json.h"
#include "net/http_client.h"

namespace quern {
namespace {

constexpr std::chrono::milliseconds kPatience{30'000};
constexpr int64_t kLargestAnswer = 16 << 20;

struct ServerCall {
  std::string url = "http://127.0.0.1:8000";
  std::string api_key;
  std::string model;
  bool json = false;
  bool helped = false;
};

Result<ServerCall> parse(Flags flags, bool with_model, std::span<char* const> arguments) {
  ServerCall call;
  if (const char* key = std::getenv("QUERN_API_KEY"); key != nullptr) call.api_key = key;
  if (with_model) flags.positional("MODEL", &call.model);
  flags.add("--url", "URL", "the server [http://127.0.0.1:8000]", &call.url);
  flags.add("--api-key", "KEY", "its key (or $QUERN_API_KEY)", &call.api_key);
  flags.add("--json", "print JSON", &call.json);
  TRY(flags.parse(arguments));
  call.helped = flags.help_wanted();
  if (call.helped) fmt::print("{}", flags.help());
  if (!call.helped && with_model && call.model.empty()) return Error{"name a model; quern ps shows those in memory"};
  return call;
}

/// The answer as an object; what the server says is wrong becomes the error.
Result<Json> ask(const ServerCall& call, const std::string& method, const std::string& path, const std::string& body) {
  ASSIGN_OR_RETURN(const HttpUrl url, parse_url(call.url));
  HttpRequest request{method, url.path + path, {{"content-type", "application/json"}}, body, ""};
  if (!call.api_key.empty()) request.headers.emplace_back("authorization", "Bearer " + call.api_key);
  HttpClient client(url);
  HttpReading reading;
  reading.timeout = kPatience;
  reading.max_body_bytes = kLargestAnswer;
  const auto answer = client.send(request, reading);
  if (!answer.ok())
    return Error{fmt::format("no server answers at {}: {}; start one with quern serve, or name it with --url", call.url,
                             answer.error().message)};
  const auto json = Json::parse(answer->body);
  const Json* error = json.ok() ? json->find("error") : nullptr;
  std::string said;
  if (error != nullptr) said = error->is_string() ? error->as_string() : error->string("message").value_or("");
  if (answer->status == 401) return Error{fmt::format("{} wants a key: give --api-key or set QUERN_API_KEY", call.url)};
  if (answer->status / 100 != 2)
    return Error{said.empty() ? fmt::format("{} answers {} to {}", call.url, answer->status, path) : said};
  if (!json.ok() || !json->is_object())
    return Error{fmt::format("{} is no server of models: {} is not JSON", call.url, path)};
  return *json;
}

/// "100% GPU", "100% CPU", "35%/65% CPU/GPU", as Ollama puts it.
std::string processor_of(const Json& model) {
  const int64_t all = model.integer("size").value_or(0), gpu = model.integer("size_vram").value_or(0);
  if (all <= 0 || gpu <= 0) return "100% CPU";
  const auto part = static_cast<int>(100.0 * static_cast<double>(std::min(gpu, all)) / static_cast<double>(all) + 0.5);
  return part == 100 ? "100% GPU" : fmt::format("{}%/{}% CPU/GPU", 100 - part, part);
}

void print_models(const Json& answer) {
  const Json* models = answer.find("models");
  size_t widest = 4;
  const Json none{Json::Array{}};
  const Json::Array& all = models != nullptr && models->is_array() ? models->items() : none.items();
  const auto name_of = [](const Json& model) { return model.string("name").value_or(""); };
  for (const Json& model : all) widest = std::max(widest, name_of(model).size());
  fmt::print("{:{}}  {:>10}  {:16}  {:>8}  {}\n", "NAME", widest, "SIZE", "PROCESSOR", "CONTEXT", "UNTIL");
  for (const Json& model : all) {
    fmt::print("{:{}}  {:>10}  {:16}  {:>8}  {}\n", name_of(model), widest,
               size_text(model.integer("size").value_or(0)), processor_of(model),
               model.integer("context_length").value_or(0), model.string("expires_at").value_or("-"));
  }
}

}  // namespace

int ps_command(std::span<char* const> arguments) {
  const auto call = parse(Flags("quern ps [flags]", "quern ps --url http://127.0.0.1:8000"), false, arguments);
  if (!call.ok()) return fail(call.error().message);
  if (call->helped) return 0;
  const auto answer = ask(*call, "GET", "/api/ps", "");
  if (!answer.ok()) return fail(answer.error().message);
  if (call->json) {
    fmt::print("{}\n", answer->dump());
  } else {
    print_models(*answer);
  }
  return 0;
}

int stop_command(std::span<char* const> arguments) {
  const auto call = parse(Flags("quern stop MODEL [flags]", "quern stop Qwen/Qwen3-0.6B"), true, arguments);
  if (!call.ok()) return fail(call.error().message);
  if (call->helped) return 0;
  Json body;
  body.set("model", Json(call->model)).set("keep_alive", Json(int64_t{0})).set("stream", Json(false));
  const auto answer = ask(*call, "POST", "/api/generate", body.dump());
  if (!answer.ok()) return fail(answer.error().message);
  if (call->json) {
    fmt::print("{}\n", answer->dump());
  } else {
    fmt::print("{} leaves the memory of {}\n", call->model, call->url);
  }
  return 0;
}

}  // namespace quern
