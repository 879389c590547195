// quern batch: the requests of a file, answered into another one.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fmt/format.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "apps/batch/batch_file.h"
#include "apps/commands.h"
#include "apps/interrupt.h"
#include "apps/serve/models.h"
#include "apps/serve/options.h"
#include "base/channel.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "net/http_client.h"
#include "server/server.h"

namespace quern {
namespace {

constexpr std::chrono::hours kPatience{24};
constexpr int kFewestClients = 8;

/// One request is waiting for each that runs, so that the scheduler never lacks work.
int clients_for(const ServeOptions& options, int64_t requests) {
  const int rows = options.models.instance.max_num_seqs;
  const int wanted = rows > 0 ? std::clamp(2 * rows, kFewestClients, 1024) : 256;
  return static_cast<int>(std::min<int64_t>(wanted, requests));
}

/// The whole run: as many clients as keep the server of this process busy.
class Batch {
 public:
  Batch(BatchInput& input, BatchOutput& output, int port, std::string key)
      : input_(input), output_(output), port_(port), key_(std::move(key)) {}

  /// Returns when all is answered, or all that was running when stop() was called.
  void run(int clients) {
    std::vector<std::thread> threads;
    for (int i = 0; i < clients; ++i) threads.emplace_back([this] { work(); });
    std::thread reporter([this] { report(); });
    for (std::thread& thread : threads) thread.join();
    all_done_.try_send(0);
    reporter.join();
    show(true);
  }
  void stop() { stopped_ = true; }

  bool stopped() const { return stopped_; }
  int64_t errors() const { return errors_; }
  const std::string& failure() const { return failure_; }

 private:
  void work() {
    HttpClient client("127.0.0.1", port_);
    while (!stopped_) {
      const auto request = input_.next();
      if (!request) return;
      const Status written = answer(client, *request);
      ++done_;
      if (written.ok()) continue;
      if (!stopped_.exchange(true)) failure_ = written.error().message;
    }
  }

  Status answer(HttpClient& client, const BatchRequest& request) {
    if (request.wrong) {
      ++errors_;
      return output_.fail(request, "invalid_request", *request.wrong);
    }
    HttpRequest sent{"POST",
                     request.url,
                     {{"Content-Type", "application/json"}, {"Authorization", "Bearer " + key_}},
                     request.body,
                     ""};
    HttpReading reading;
    reading.timeout = kPatience;
    const auto response = client.send(sent, reading);
    if (!response.ok()) {
      ++errors_;
      return output_.fail(request, "no_answer", response.error().message);
    }
    if (response->status != 200) ++errors_;
    return output_.answer(request, *response);
  }

  void report() {
    const int64_t period_us = isatty(STDERR_FILENO) != 0 ? 500'000 : 10'000'000;
    while (!all_done_.receive_until(std::chrono::steady_clock::now() + std::chrono::microseconds(period_us)))
      show(false);
  }

  void show(bool last) const {
    const double seconds = std::max(seconds_since(start_us_), 1e-3);
    const int64_t done = done_;
    const int64_t left = input_.total() - input_.answered() - done;
    const double rate = static_cast<double>(done) / seconds;
    const bool terminal = isatty(STDERR_FILENO) != 0;
    fmt::print(stderr, "{}{} of {} requests answered, {:.1f}/s, {} errors", terminal ? "\r" : "",
               input_.answered() + done, input_.total(), rate, errors_.load());
    if (done > 0 && left > 0) fmt::print(stderr, ", {:.0f} s left", static_cast<double>(left) / rate);
    fmt::print(stderr, "{}{}", terminal ? "\033[K" : "", terminal && !last ? "" : "\n");
  }

  BatchInput& input_;
  BatchOutput& output_;
  const int port_;
  const std::string key_;
  const int64_t start_us_ = now_us();
  std::atomic<int64_t> done_ = 0;
  std::atomic<int64_t> errors_ = 0;
  std::atomic<bool> stopped_ = false;
  std::string failure_;  // of the output; set once
  Channel<int> all_done_;
};

int run_batch(ServeOptions& options, const std::string& in, const std::string& out) {
  auto output = BatchOutput::open(out);
  if (!output.ok()) return fail(output.error().message);
  auto input = BatchInput::open(in, output->take_answered());
  if (!input.ok()) return fail(input.error().message);
  const int64_t left = input->total() - input->answered();
  if (left == 0) {
    fmt::print(stderr, "{} of {} requests were answered before; nothing is left\n", input->answered(), input->total());
    return 0;
  }
  std::atomic<Batch*> running = nullptr;
  const Interrupt interrupt([&](int signal) {  // the second one leaves at once
    Batch* const batch = running.exchange(nullptr);
    if (batch == nullptr) _exit(128 + signal);
    batch->stop();
    fmt::print(stderr, "\nstopping: what is running is finished first\n");
  });
  auto models = ServedModels::open(options.models, options.paths);
  if (!models.ok()) return fail(models.error().message);
  const std::string key = random_hex();
  options.keeper.memory_bytes = (*models)->memory_bytes();
  ServerOptions serving = options.server();
  serving.http.host = "127.0.0.1";
  serving.http.port = 0;
  serving.http.tls = {};
  serving.api_keys = {{"batch", key_digest(key), {}}};
  Server server(serving, options.keeper, (*models)->cards(), **models);
  const Status started = server.start();
  if (!started.ok()) return fail(started.error().message);
  Batch batch(*input, *output, server.port(), key);
  running = &batch;
  batch.run(clients_for(options, left));
  if (!batch.failure().empty()) return fail(batch.failure());
  if (batch.stopped()) {
    fmt::print(stderr, "stopped: the same command goes on from here\n");
    return 130;
  }
  if (batch.errors() > 0)
    fmt::print(stderr, "{} answers are errors: see 'error' and 'status_code' in {}\n", batch.errors(), out);
  return 0;
}

}  // namespace

int batch_command(std::span<char* const> arguments) {
  std::vector<char*> rest;
  std::vector<std::string> files;
  for (char* const word : arguments) {
    if (files.size() < 2 && rest.empty() && std::string_view(word).substr(0, 1) != "-") {
      files.emplace_back(word);
    } else {
      rest.push_back(word);
    }
  }
  const bool help = std::ranges::any_of(rest, [](const char* word) { return std::string_view(word) == "--help"; });
  if (help || files.size() < 2) {
    constexpr const char* usage =
        "quern batch IN.jsonl OUT.jsonl [MODEL] [flags of quern serve]\n\n"
        "Answers every line of IN, as in OpenAI's batch API:\n"
        "  {\"custom_id\": \"1\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\", \"body\": {\"messages\": "
        "[...]}}\n"
        "Answers are added to OUT as they come, in any order. Lines that OUT has are not asked again, so that the "
        "same\n"
        "command goes on after a stop.\n\nexample:\n  quern batch requests.jsonl answers.jsonl model.gguf\n";
    if (help) return fmt::print("usage: {}", usage), 0;
    return fail("name two files: quern batch IN.jsonl OUT.jsonl [MODEL]");
  }
  bool unused = false;
  auto options = parse_serve_options(rest, &unused);
  if (!options.ok()) return fail(options.error().message);
  const auto names_level = [](std::string_view word) { return word.starts_with("--log-level"); };
  if (std::ranges::none_of(rest, names_level)) set_log_level(LogLevel::warning);
  return run_batch(*options, files[0], files[1]);
}

}  // namespace quern
