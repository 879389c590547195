// quern serve: models over the OpenAI API.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <fmt/format.h>
#include <mutex>
#include <unistd.h>
#include <utility>

#include "apps/commands.h"
#include "apps/interrupt.h"
#include "apps/serve/models.h"
#include "apps/serve/options.h"
#include "apps/serve/outward.h"
#include "base/log.h"
#include "server/server.h"

namespace quern {
namespace {

enum class Sign : uint8_t { stop, hangup, death };

/// SIGTERM or Ctrl-C: the first one drains, the second one leaves at once; so does the first before anything is served,
/// while models are pulled or loaded. SIGHUP: files are read again. Death: a device does not work any more, and its
/// requests have been answered.
class Signs {
 public:
  void begin_serving() {
    const std::lock_guard lock(mutex_);
    serving_ = true;
  }
  void raise(int signal) {
    const std::lock_guard lock(mutex_);
    if (signal == SIGHUP) {
      hangup_ = true;
    } else if (!serving_ || stops_++ > 0) {
      if (!serving_) fmt::print(stderr, "\nquern: stopped before anything was served\n");
      _exit(serving_ || signal != SIGTERM ? 128 + signal : 0);
    }
    raised_.notify_all();
  }
  void die() {
    const std::lock_guard lock(mutex_);
    dead_ = true;
    raised_.notify_all();
  }
  Sign wait() {
    std::unique_lock lock(mutex_);
    raised_.wait(lock, [&] { return stops_ > 0 || dead_ || hangup_; });
    if (dead_) return Sign::death;
    if (stops_ > 0) return Sign::stop;
    hangup_ = false;
    return Sign::hangup;
  }

 private:
  std::mutex mutex_;  // between the threads of signals and engines, and main
  std::condition_variable raised_;
  int stops_ = 0;
  bool serving_ = false;
  bool hangup_ = false;
  bool dead_ = false;
};

/// A file that is broken changes nothing.
void read_keys_again(const ServeOptions& options, Server& server) {
  auto keys = all_keys(options);
  if (!keys.ok()) return log_error("the keys stay as they are: {}", keys.error().message);
  log_info("{} has been read again: {} keys", options.api_keys_file, keys->size());
  server.set_keys(std::move(*keys));
}

/// What is served, before anything of it is loaded.
std::string description(const ServedModels& models) {
  std::string text = fmt::format("quern {} serves {} models within {:.1f} GiB of memory\n\n", quern_version,
                                 models.cards().size(), static_cast<double>(models.memory_bytes()) / (1 << 30));
  for (const ModelCard& card : models.cards()) {
    text += fmt::format("  {:40} {:>8.1f} MiB  context {:>7}  {}{}\n", card.names.front(),
                        static_cast<double>(card.bytes) / (1 << 20), card.max_model_len, task_name(card.output),
                        card.pinned ? ", pinned" : "");
  }
  return text + "\nready";
}

/// Where the server is, and a call of it to be copied.
void print_ready(const ServedModels& models, ServeOptions& options, int port) {
  const HttpServerOptions& http = options.server().http;
  const ModelCard& first = models.cards().front();
  const char* scheme = http.tls.certificates.empty() ? "http" : "https";
  const bool everywhere = http.host == "0.0.0.0" || http.host == "::";
  const bool in_files = !http.uds.empty();
  const std::string url = in_files ? fmt::format("{}://localhost", scheme)
                                   : fmt::format("{}://{}:{}", scheme, everywhere ? "localhost" : http.host, port);
  fmt::print("{} at {}\n", models.cards().size() == 1 ? models.description() : description(models),
             in_files ? http.uds : url);
  if (const std::string address = everywhere && !in_files ? outward_address() : ""; !address.empty())
    fmt::print("for other machines: {}://{}:{}\n", scheme, address, port);
  struct Sample {
    const char* path;
    const char* body;
  };
  constexpr Sample samples[] = {
      {"chat/completions", "\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]"},
      {"embeddings", "\"input\": [\"Hello world\", \"Guten Tag\"]"},
      {"rerank", "\"query\": \"What is a panda?\", \"documents\": [\"It is a bear.\", \"It is a car.\"]"}};
  const Sample& sample = samples[static_cast<size_t>(first.output)];
  fmt::print("\n  curl {}{}/v1/{} -H 'Content-Type: application/json' \\\n    -d '{{\"model\": \"{}\", {}}}'\n\n",
             in_files ? fmt::format("--unix-socket {} ", http.uds) : "", url, sample.path, first.names.front(),
             sample.body);
  const bool local = in_files || http.host == "localhost" || http.host == "::1" || http.host.starts_with("127.");
  const bool guarded = !options.server().api_keys.empty() || !http.tls.client_authorities.empty();
  if (!local && !guarded) fmt::print("anybody who reaches this port may use it: set --api-key\n");
  std::fflush(stdout);
}

/// What has been answered reaches its clients; nothing else can be done.
int end_after_death(Server& server) {
  constexpr std::chrono::seconds patience{5};
  server.drain(std::chrono::steady_clock::now() + patience);
  return fail("the device does not work any more; every request has been answered, start the server again");
}

std::string place_of(ServeOptions& options, int port) {
  const std::string& path = options.server().http.uds;
  return path.empty() ? fmt::format("port {}", port) : path;
}

int serve(ServeOptions& options) {
  Signs signs;
  options.models.instance.on_dead = [&](const std::string& reason) {
    log_error("{}", reason);
    signs.die();
  };
  const Interrupt interrupt([&](int signal) { signs.raise(signal); }, !options.api_keys_file.empty());
  auto models = ServedModels::open(options.models, options.paths);
  if (!models.ok()) return fail(models.error().message);
  options.keeper.memory_bytes = (*models)->memory_bytes();
  Server server(options.server(), options.keeper, (*models)->cards(), **models);
  const Status listening = server.listen();
  if (!listening.ok()) return fail(listening.error().message);
  if (std::ranges::any_of((*models)->cards(), &ModelCard::preload))
    log_info("{} is open; /health answers 503 until the model is loaded", place_of(options, server.port()));
  const Status started = server.start([&signs] { signs.begin_serving(); });
  if (!started.ok()) return fail(started.error().message);
  print_ready(**models, options, server.port());
  Sign sign = signs.wait();
  for (; sign == Sign::hangup; sign = signs.wait()) read_keys_again(options, server);
  if (sign == Sign::death) return end_after_death(server);
  log_info("draining: running answers have {:.0f} s to finish", options.shutdown_timeout_s);
  const auto after = [now = std::chrono::steady_clock::now()](double seconds) {
    return now + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
  };
  const bool all = server.drain(after(options.shutdown_timeout_s), after(options.shutdown_grace_s));
  log_info("{}", all ? "drained; all answers were finished" : "stopped; some answers were cut off");
  return 0;
}

int dry_run(const ServeOptions& options) {
  for (const NamedPath& model : options.paths) {
    InstanceOptions instance = options.models.instance;
    instance.model = model.path;
    const auto opened = open_model(instance);
    if (!opened.ok()) return fail(opened.error().message);
    fmt::print("{}{}", options.paths.size() > 1 ? opened->name + "\n" : "", describe(opened->memory));
  }
  return 0;
}

}  // namespace

int serve_command(std::span<char* const> arguments) {
  bool help = false;
  auto options = parse_serve_options(arguments, &help);
  if (!options.ok()) return fail(options.error().message);
  if (help) return 0;
  return options->dry_run ? dry_run(*options) : serve(*options);
}

}  // namespace quern
