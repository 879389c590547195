#include "apps/bench_url.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <optional>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

#include "apps/commands.h"
#include "apps/interrupt.h"
#include "apps/load/options.h"
#include "apps/load/report.h"
#include "apps/load/requests.h"
#include "apps/load/run.h"
#include "apps/load/server_metrics.h"
#include "apps/load/sweep.h"
#include "apps/load/tokens.h"
#include "apps/measure/machine_facts.h"
#include "base/clock.h"
#include "base/flags.h"
#include "base/thread_pool.h"

namespace quern {
namespace {

using namespace std::chrono_literals;

/// Why an attempt failed, and whether another may succeed.
struct Attempt {
  std::string failure;  // "" for success
  bool again = false;
};

/// A server that is starting refuses connections, or says 503 and the like.
Attempt failed_with(const HttpResponse& response) {
  const bool again = response.status >= 500 || response.status == 408 || response.status == 429;
  const char* hint = response.status == 401 ? "; give its key with --api-key" : "";
  return {refusal_of(response) + hint, again};
}

/// The name of the model, from the options or the server.
Attempt find_model(HttpClient& client, LoadTarget& target, const std::string& wanted, std::chrono::milliseconds most) {
  if (!wanted.empty()) {
    target.fields.set("model", wanted);
    return {};
  }
  const auto answer = client.send(target.get("/v1/models"), std::min<std::chrono::milliseconds>(most, 30s));
  if (!answer.ok()) return {answer.error().message, true};
  if (answer->status != 200) return failed_with(*answer);
  const auto list = Json::parse(answer->body);
  const Json* models = list.ok() ? list->present("data") : nullptr;
  if (models == nullptr || !models->is_array() || models->items().empty() || !models->items()[0].string("id")) {
    return {"/v1/models lists no model; give its name with --model", false};
  }
  target.fields.set("model", *models->items()[0].string("id"));
  return {};
}

/// A real request for one token.
Attempt probe(HttpClient& client, const LoadTarget& target, LoadPrompt prompt, std::chrono::milliseconds most) {
  prompt.output_tokens = 1;
  const auto answer = client.send(target.post(prompt), std::min(most, target.timeout));
  if (!answer.ok()) return {answer.error().message, true};
  return answer->status / 100 == 2 ? Attempt{} : failed_with(*answer);
}

/// Asks for the model's name and for one answer until both succeed or the time is over.
Status wait_until_ready(const LoadTestOptions& options, LoadTarget& target, const LoadPrompt& prompt) {
  HttpClient client(target.server());
  const int64_t start_us = now_us();
  for (bool said = false;;) {
    const auto left = [&] {  // also for a server that does not answer at all
      const double seconds = options.ready_timeout_s - seconds_since(start_us);
      return options.ready_timeout_s == 0
                 ? 30'000ms
                 : std::chrono::milliseconds(std::max<int64_t>(1, static_cast<int64_t>(seconds * 1e3)));
    };
    Attempt attempt = find_model(client, target, options.model, left());
    if (attempt.failure.empty() && options.ready_timeout_s > 0) attempt = probe(client, target, prompt, left());
    if (attempt.failure.empty()) return {};
    if (!attempt.again || seconds_since(start_us) >= options.ready_timeout_s) {
      return Error{fmt::format("{}{}: {}", target.server().origin(), target.prefix, attempt.failure)};
    }
    if (!said && !options.quiet) {
      fmt::print(stderr, "waiting up to {} s for the server: {}\n", options.ready_timeout_s, attempt.failure);
    }
    said = true;
    std::this_thread::sleep_for(250ms);
  }
}

ServerMetrics scrape(const LoadTarget& target) {
  HttpClient client(target.server());
  const auto answer = client.send(target.get("/metrics"), 5s);
  return answer.ok() && answer->status == 200 ? ServerMetrics::parse(answer->body) : ServerMetrics();
}

/// As the server says at /version, or "".
std::string version_of(const LoadTarget& target) {
  HttpClient client(target.server());
  const auto answer = client.send(target.get("/version"), 5s);
  if (!answer.ok() || answer->status != 200) return "";
  const auto body = Json::parse(answer->body);
  return body.ok() ? body->string("version").value_or("") : "";
}

/// Brings the server's prefix cache to the state that the run is to begin with.
Status prepare_cache(const LoadTestOptions& options, const LoadTarget& target, std::span<const LoadPrompt> measured) {
  if (options.prefix_cache == "cold") {
    HttpRequest request = target.get("/reset_prefix_cache");
    request.method = "POST";
    const auto answer = HttpClient(target.server()).send(request, 30s);
    const std::string failure = !answer.ok()                ? answer.error().message
                                : answer->status / 100 != 2 ? refusal_of(*answer)
                                                            : "";
    if (failure.empty()) return {};
    return Error{fmt::format(
        "--prefix-cache cold: POST /reset_prefix_cache: {}; start the server with --enable-sleep-mode (vLLM: "
        "VLLM_SERVER_DEV_MODE=1), or send prompts that it has not seen with another --seed",
        failure)};
  }
  if (options.prefix_cache != "warm") return {};
  std::vector<LoadPrompt> short_ones(measured.begin(), measured.end());
  for (LoadPrompt& prompt : short_ones) prompt.output_tokens = 1;
  LoadRun run(target, short_ones, options.max_concurrency);
  run.run(std::vector<double>(short_ones.size(), 0.0));
  return {};
}

double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

/// How many of how many requests have ended: rewritten on a terminal, else a line every ten seconds.
class DoneLine {
 public:
  DoneLine(int total, bool quiet) : total_(total), quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0) {}
  ~DoneLine() {
    if (shown_ && terminal_) fmt::print(stderr, "\r\033[K");
  }
  DoneLine(const DoneLine&) = delete;
  DoneLine& operator=(const DoneLine&) = delete;

  void show(int done) {
    const int64_t now = now_us();
    if (quiet_ || now - shown_us_ < (terminal_ ? 200'000 : 10'000'000)) return;
    shown_us_ = now;
    shown_ = true;
    fmt::print(stderr, "{}{} of {} requests{}", terminal_ ? "\r\033[K" : "", done, total_, terminal_ ? "" : "\n");
    std::fflush(stderr);
  }

 private:
  const int total_;
  const bool quiet_;
  const bool terminal_;
  int64_t shown_us_ = now_us();
  bool shown_ = false;
};

Json result_json(const LoadTestOptions& options, const LoadReport& report, std::span<const LoadOutcome> outcomes) {
  Json json = report_json(report, outcomes);
  if (!options.arrivals.ramp.empty()) {
    json.set("ramp_up_strategy", options.arrivals.ramp);
    json.set("ramp_up_start_rps", options.arrivals.ramp_start);
    json.set("ramp_up_end_rps", options.arrivals.ramp_end);
  }
  for (const std::string& pair : options.metadata) {
    const size_t equals = pair.find('=');
    json.set(pair.substr(0, equals), pair.substr(equals + 1));
  }
  return json;
}

std::string result_path(const LoadTestOptions& options, const LoadReport& report, const std::string& date) {
  std::string name = options.filename;
  if (name.empty()) {
    const std::string model = report.facts.model.substr(report.facts.model.rfind('/') + 1);
    const std::string limit = options.max_concurrency > 0 ? fmt::format("-concurrency{}", options.max_concurrency) : "";
    const std::string label = options.label.empty() ? options.backend : options.label;
    name = fmt::format("{}-{}qps{}-{}-{}.json", label, options.arrivals.rate, limit, model, date);
  }
  return options.directory.empty() ? name : options.directory + "/" + name;
}

Status save(const LoadTestOptions& options, const LoadReport& report, std::span<const LoadOutcome> outcomes) {
  const Json json = result_json(options, report, options.detailed ? outcomes : std::span<const LoadOutcome>());
  const std::string path = result_path(options, report, json.string("date").value_or(""));
  std::ofstream file(path, std::ios::binary);
  file << json.dump() << '\n';
  if (!file.flush()) return Error{fmt::format("{}: the result cannot be written", path)};
  if (!options.json) fmt::print("saved {}\n", path);
  return {};
}

std::string backend_of(const LoadTestOptions& options, const LoadTarget& target) {
  if (target.chat()) return "openai-chat";
  return options.backend == "openai-chat" ? "openai" : options.backend;
}

Result<LoadFacts> known_facts(const LoadTestOptions& options, const LoadTarget& target) {
  LoadFacts facts;
  facts.endpoint = target.endpoint;
  facts.backend = backend_of(options, target);
  facts.tokenizer = options.tokenizer;
  facts.label = options.label;
  facts.dataset = options.prompts.dataset;
  facts.seed = options.seed;
  facts.prompts = options.num_prompts;
  facts.warmups = options.num_warmups;
  facts.prefix_cache = options.prefix_cache;
  facts.client = machine_facts();
  facts.rate = options.arrivals.rate;
  facts.burstiness = options.arrivals.burstiness;
  if (options.max_concurrency > 0) facts.max_concurrency = options.max_concurrency;
  facts.usable_cores = usable_cores();
  facts.metrics = words_of(options.metrics);
  for (const std::string& name : facts.metrics) {
    if (name != "ttft" && name != "tpot" && name != "itl" && name != "e2el") {
      return Error{fmt::format("--percentile-metrics: '{}' is none of ttft, tpot, itl, e2el", name)};
    }
  }
  ASSIGN_OR_RETURN(facts.percents, parse_percentiles(options.percentiles));
  ASSIGN_OR_RETURN(facts.goodput, parse_goodput(fmt::format("{}", fmt::join(options.goodput, ","))));
  return facts;
}

/// Runs the measurement itself; Ctrl-C ends it early, and the program at any other time.
class Measurement {
 public:
  Measurement(const LoadTestOptions& options, const LoadTarget& target, std::span<const LoadPrompt> prompts)
      : options_(options), target_(target), run_(target, prompts, options.max_concurrency) {}

  void interrupt() { run_.stop(); }

  LoadReport measure(LoadFacts facts) {
    const auto arrivals = arrival_times(options_.arrivals, facts.prompts, static_cast<uint64_t>(options_.seed));
    const ServerMetrics before = scrape(target_);
    const double cpu = cpu_seconds();
    {
      DoneLine line(facts.prompts, options_.quiet);
      run_.run(arrivals, [&](int done) { line.show(done); });
    }
    facts.cpu_cores = (cpu_seconds() - cpu) / std::max(run_.seconds(), 1e-3);
    facts.server = ServerFigures::between(before, scrape(target_));
    facts.server_version = version_of(target_);
    if (options_.prompts.tokens != nullptr) run_.count(*options_.prompts.tokens);
    facts.seconds = run_.seconds();
    facts.interrupted = run_.stopped();
    facts.waited = run_.waited();
    facts.connections = run_.limit();
    const bool open_loop = std::isfinite(facts.rate) || !options_.arrivals.ramp.empty();
    if (open_loop && facts.waited == 0) facts.late_p99_ms = 1e3 * run_.late_p99_s(arrivals);
    return make_report(std::move(facts), run_.outcomes());
  }

  std::span<const LoadOutcome> outcomes() const { return run_.outcomes(); }

 private:
  const LoadTestOptions& options_;
  const LoadTarget& target_;
  LoadRun run_;
};

/// At each concurrency other prompts, so that the server has seen none of them.
Result<int> sweep_server(LoadTestOptions& options, LoadTarget target) {
  options.sweep.limits = fmt::format("{}", fmt::join(options.goodput, ","));
  ASSIGN_OR_RETURN(const Sweep sweep, Sweep::parse(options.sweep));
  if (options.save || options.detailed)
    return Error{"--save-result writes one run; a sweep prints its points with --json"};
  if (options.prefix_cache != "as-is")
    return Error{"--prefix-cache is for one run; each point of a sweep has new prompts"};
  int count = 1;
  for (const int concurrency : sweep.concurrencies) count += Sweep::requests_at(concurrency);
  ASSIGN_OR_RETURN(const auto prompts, make_prompts(options.prompts, count, static_cast<uint64_t>(options.seed)));
  auto left = std::span<const LoadPrompt>(prompts);
  TRY(wait_until_ready(options, target, left.back()));
  if (!options.json) fmt::print("{}", sweep_head(sweep));
  std::vector<SweepPoint> points;
  for (const int concurrency : sweep.concurrencies) {
    const auto some = left.first(static_cast<size_t>(Sweep::requests_at(concurrency)));
    left = left.subspan(some.size());
    LoadRun run(target, some, concurrency);
    run.run(std::vector<double>(some.size(), 0.0));
    if (options.prompts.tokens != nullptr) run.count(*options.prompts.tokens);
    LoadFacts facts;
    facts.seconds = run.seconds();
    points.push_back({concurrency, make_report(std::move(facts), run.outcomes())});
    fmt::print("{}", options.json ? point_json(sweep, points.back()).dump() + "\n" : point_line(sweep, points.back()));
    std::fflush(stdout);
  }
  if (!options.json) fmt::print("{}", knee_line(sweep, points));
  return std::ranges::any_of(points, [](const SweepPoint& point) { return point.report.completed > 0; }) ? 0 : 1;
}

/// The measured prompts, and others for the check and the warm-up, so that the server has seen none of the measured.
struct Prompts {
  static Result<Prompts> make(const LoadTestOptions& options) {
    const auto seed = static_cast<uint64_t>(options.seed);
    const int others = options.num_warmups + 1;
    const bool made = options.prompts.made();  // these begin with other prefixes under another seed
    Prompts prompts;
    ASSIGN_OR_RETURN(prompts.measured, make_prompts(options.prompts, options.num_prompts + (made ? 0 : others), seed));
    if (made) {
      ASSIGN_OR_RETURN(prompts.others, make_prompts(options.prompts, others, ~seed));
    } else {
      const auto end = prompts.measured.begin() + options.num_prompts;
      prompts.others.assign(end, prompts.measured.end());
      prompts.measured.resize(static_cast<size_t>(options.num_prompts));
    }
    if (options.request_id_prefix.empty()) return prompts;
    int number = 0;
    for (LoadPrompt& prompt : prompts.measured) {
      prompt.request_id = fmt::format("{}{}", options.request_id_prefix, number++);
    }
    return prompts;
  }

  const LoadPrompt& check() const { return others.back(); }
  std::span<const LoadPrompt> warmup() const { return std::span(others).first(others.size() - 1); }

  std::vector<LoadPrompt> measured, others;
};

Result<int> load_once(const LoadTestOptions& options, LoadTarget target) {
  ASSIGN_OR_RETURN(LoadFacts facts, known_facts(options, target));
  ASSIGN_OR_RETURN(const Prompts prompts, Prompts::make(options));
  if (target.chat() && !prompts.check().ids.empty()) {
    return Error{"token ids cannot be sent to a chat endpoint; use /v1/completions"};
  }

  Measurement measurement(options, target, prompts.measured);
  std::atomic<Measurement*> running = nullptr;
  const Interrupt interrupt([&](int) {
    Measurement* const now = running.exchange(nullptr);
    if (now == nullptr) std::_Exit(130);
    now->interrupt();
  });
  TRY(wait_until_ready(options, target, prompts.check()));
  facts.model = (target.extra.has("model") ? target.extra : target.fields).string("model").value_or("");
  if (!prompts.warmup().empty()) {
    LoadRun run(target, prompts.warmup(), options.max_concurrency);
    run.run(std::vector<double>(prompts.warmup().size(), 0.0));
    facts.warmup_s = run.seconds();
  }
  TRY(prepare_cache(options, target, prompts.measured));
  running = &measurement;
  const LoadReport report = measurement.measure(std::move(facts));
  running = nullptr;

  fmt::print("{}", options.json ? result_json(options, report, {}).dump() + "\n" : report_table(report));
  if (options.save || options.detailed) TRY(save(options, report, measurement.outcomes()));
  return report.completed > 0 ? 0 : 1;
}

Result<int> load_server(LoadTestOptions& options) {
  TRY(check(options));
  ASSIGN_OR_RETURN(LoadTarget target, make_target(options));
  options.prompts.chat = target.chat();
  options.prompts.words |= target.chat();
  std::optional<LoadTokens> tokens;
  if (!options.tokenizer.empty()) {
    ASSIGN_OR_RETURN(tokens, LoadTokens::open(options.tokenizer));
    options.prompts.tokens = &*tokens;
  }
  if (options.sweep.concurrencies.empty()) return load_once(options, std::move(target));
  return sweep_server(options, std::move(target));
}

}  // namespace

bool names_a_server(std::span<char* const> arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](std::string_view word) {
    word = word.substr(0, word.find('='));
    return word == "--url" || word == "--base-url" || word == "--base_url" || word == "--host" || word == "--port";
  });
}

int bench_url_command(std::span<char* const> arguments) {
  LoadTestOptions options;
  Flags flags("quern bench --url URL [flags]: load on a server with the OpenAI API",
              "quern bench --url http://127.0.0.1:8000 --num-prompts 100 --request-rate 4 --goodput ttft:500,tpot:50");
  add_load_flags(flags, options);
  std::vector<std::string> words = with_lists_apart(arguments);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  const Status parsed = flags.parse(pointers);
  if (!parsed.ok()) return fail(parsed.error().message);
  if (flags.help_wanted()) {
    fmt::print("{}", flags.help());
    return 0;
  }
  const auto status = load_server(options);
  return status.ok() ? *status : fail(status.error().message);
}

}  // namespace quern
