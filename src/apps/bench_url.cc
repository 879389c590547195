#include "apps/bench_url.h"

#include <algorithm>
#include <atomic>
#include <charconv>
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
#include "apps/load/report.h"
#include "apps/load/requests.h"
#include "apps/load/run.h"
#include "apps/load/sweep.h"
#include "base/clock.h"
#include "base/flags.h"
#include "base/thread_pool.h"

namespace quern {
namespace {

using namespace std::chrono_literals;

constexpr int longest_s = 100'000'000;
constexpr int most_tokens = 10'000'000;
constexpr Bounds a_rate{0, 1e9, true};
constexpr double not_given = std::numeric_limits<double>::quiet_NaN();

struct LoadOptions {
  std::string url;
  std::string host = "127.0.0.1";
  int port = 8000;
  std::string endpoint;
  std::string backend = "openai";
  std::string model;
  std::string api_key;
  std::vector<std::string> headers;
  std::string extra_body;
  PromptOptions prompts;
  ArrivalOptions arrivals;
  int num_prompts = 1000;
  int num_warmups = 0;
  int max_concurrency = 0;
  int64_t seed = 0;
  bool ignore_eos = false;
  double temperature = 0.0;
  double top_p = not_given, top_k = not_given, min_p = not_given;
  std::string goodput;
  std::string metrics = "ttft,tpot,itl,e2el";
  std::string percentiles = "99";
  int ready_timeout_s = 600;
  int request_timeout_s = 6 * 3600;
  bool save = false;
  bool detailed = false;
  bool json = false;
  bool quiet = false;
  std::string directory = ".";
  std::string filename;
  SweepOptions sweep;  // its limits are those of goodput
  std::string label;
  std::vector<std::string> metadata;
};

void add_traffic_flags(Flags& flags, LoadOptions& options) {
  flags.add("--dataset-name", "NAME", "random, sharegpt or custom [random]", &options.prompts.dataset);
  flags.add("--dataset-path", "FILE", "sharegpt: JSON; custom: lines with prompt and output_len",
            &options.prompts.path);
  flags.add("--random-input-len", "N", "tokens of a random prompt [1024]", &options.prompts.input_tokens,
            between(1, most_tokens));
  flags.add("--output-len", "N", "tokens to ask for [random: 128; else the dataset's]", &options.prompts.output_tokens,
            between(1, most_tokens));
  flags.add("--random-range-ratio", "R", "lengths vary by this part, 0 to below 1 [0]", &options.prompts.range_ratio,
            between(0, 0.999));
  flags.add("--random-prefix-len", "N", "equal first tokens of all random prompts [0]", &options.prompts.prefix_tokens,
            between(0, most_tokens));
  flags.add("--random-vocab-size", "N", "random token ids are below this [30000]", &options.prompts.vocabulary,
            between(2, INT32_MAX));
  flags.add("--random-text", "random words, not token ids (always so for chat)", &options.prompts.words);
  flags.add("--num-prompts", "N", "requests [1000]", &options.num_prompts, between(1, 10'000'000));
  flags.add("--num-warmups", "N", "requests before the measurement, with other prompts [0]", &options.num_warmups,
            between(0, 1'000'000));
  flags.add("--request-rate", "R", "requests per second, or inf: all at once [inf]", &options.arrivals.rate, above(0));
  flags.add("--burstiness", "B", "shape of the gaps: 1 is Poisson, inf is even [1]", &options.arrivals.burstiness,
            above(0));
  flags.add("--ramp-up-strategy", "S", "linear or exponential change of the rate", &options.arrivals.ramp);
  flags.add("--ramp-up-start-rps", "R", "rate of the first request", &options.arrivals.ramp_start, a_rate);
  flags.add("--ramp-up-end-rps", "R", "rate of the last request", &options.arrivals.ramp_end, a_rate);
  flags.add("--max-concurrency", "N", "requests that run at once; with rate inf a closed loop",
            &options.max_concurrency, between(1, 1'000'000));
  flags.add("--sweep", "A,B,...", "instead runs with so many requests at once each, and where it is best run",
            &options.sweep.concurrencies);
  flags.add("--price-per-hour", "P", "of the machine: a sweep then says what a million tokens cost",
            &options.sweep.price_per_hour, between(0, 1e9));
  flags.add("--seed", "N", "of prompts and arrivals [0]", &options.seed, between(0, INT32_MAX));
  flags.alias("--input-len", "--random-input-len");
  flags.alias("--random-output-len", "--output-len");
  flags.alias("--sharegpt-output-len", "--output-len");
  flags.alias("--custom-output-len", "--output-len");
}

void add_server_flags(Flags& flags, LoadOptions& options) {
  flags.add("--url", "URL", "the server, as http://HOST:PORT", &options.url);
  flags.alias("--base-url", "--url");
  flags.add("--host", "HOST", "instead of --url [127.0.0.1]", &options.host);
  flags.add("--port", "N", "instead of --url [8000]", &options.port, between(1, 65535));
  flags.add("--endpoint", "PATH", "/v1/completions or /v1/chat/completions", &options.endpoint);
  flags.add("--backend", "NAME", "openai, vllm (completions) or openai-chat [openai]", &options.backend);
  flags.add("--model", "NAME", "[the first that the server lists]", &options.model);
  flags.add("--api-key", "KEY", "bearer key [OPENAI_API_KEY]", &options.api_key);
  flags.add("--header", "NAME:VALUE", "of every request; can be repeated", &options.headers);
  flags.add("--extra-body", "JSON", "object that is merged into every body", &options.extra_body);
  flags.add("--ignore-eos", "ask for the full output length", &options.ignore_eos);
  flags.add("--temperature", "T", "of sampling [0]", &options.temperature, between(0, 100));
  flags.add("--top-p", "P", "of sampling [the server's]", &options.top_p, between(0, 1));
  flags.add("--top-k", "K", "of sampling [the server's]", &options.top_k, between(-1, INT32_MAX));
  flags.add("--min-p", "P", "of sampling [the server's]", &options.min_p, between(0, 1));
  flags.add("--ready-check-timeout-sec", "N", "wait for the server; 0: no check [600]", &options.ready_timeout_s,
            between(0, longest_s));
  flags.add("--request-timeout-sec", "N", "a longer request has failed [21600]", &options.request_timeout_s,
            between(1, longest_s));
}

void add_result_flags(Flags& flags, LoadOptions& options) {
  flags.add("--goodput", "ttft:MS,tpot:MS,e2el:MS", "also count requests within these limits", &options.goodput);
  flags.add("--percentile-metrics", "A,B", "shown in the table [ttft,tpot,itl,e2el]", &options.metrics);
  flags.add("--metric-percentiles", "P,Q", "of each metric [99]", &options.percentiles);
  flags.add("--save-result", "write a JSON file", &options.save);
  flags.add("--save-detailed", "write it with the times and texts of all requests", &options.detailed);
  flags.add("--result-dir", "DIR", "of that file [.]", &options.directory);
  flags.add("--result-filename", "NAME", "[made of label, rate, model and date]", &options.filename);
  flags.add("--label", "TEXT", "for the file", &options.label);
  flags.add("--metadata", "KEY=VALUE", "for the file; can be repeated", &options.metadata);
  flags.add("--json", "print the result as JSON, not as a table", &options.json);
  flags.add("--quiet", "no progress", &options.quiet);
  flags.alias("--disable-tqdm", "--quiet");
}

Status check(const LoadOptions& options) {
  const ArrivalOptions& arrivals = options.arrivals;
  if (!arrivals.ramp.empty() && arrivals.ramp != "linear" && arrivals.ramp != "exponential") {
    return Error{fmt::format("--ramp-up-strategy {} is unknown; there are linear and exponential", arrivals.ramp)};
  }
  if (!arrivals.ramp.empty() && (arrivals.ramp_start == 0 || arrivals.ramp_end == 0)) {
    return Error{"--ramp-up-strategy needs --ramp-up-start-rps and --ramp-up-end-rps"};
  }
  if (options.backend != "openai" && options.backend != "vllm" && options.backend != "openai-chat") {
    return Error{fmt::format("--backend {} is unknown; there are openai, vllm and openai-chat", options.backend)};
  }
  for (const std::string& pair : options.metadata) {
    if (pair.find('=') == std::string::npos) return Error{fmt::format("--metadata {}: expected KEY=VALUE", pair)};
  }
  return {};
}

Status set_headers(const LoadOptions& options, LoadTarget& target) {
  std::string key = options.api_key;
  const char* from_environment = std::getenv("OPENAI_API_KEY");
  if (key.empty() && from_environment != nullptr) key = from_environment;
  for (const std::string& header : options.headers) {
    const size_t cut = header.find_first_of(":=");
    if (cut == std::string::npos || cut == 0) return Error{fmt::format("--header {}: expected NAME:VALUE", header)};
    std::string name = header.substr(0, cut);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    const size_t value = header.find_first_not_of(' ', cut + 1);
    target.headers.emplace_back(name, value == std::string::npos ? "" : header.substr(value));
  }
  const bool has_key = std::any_of(target.headers.begin(), target.headers.end(),
                                   [](const auto& header) { return header.first == "authorization"; });
  if (!key.empty() && !has_key) target.headers.emplace_back("authorization", "Bearer " + key);
  for (const auto& [name, value] : target.headers) {
    if ((name + value).find_first_of("\r\n") != std::string::npos) return Error{"a header must not hold a line break"};
  }
  return {};
}

Result<LoadTarget> make_target(const LoadOptions& options) {
  LoadTarget target;
  target.host = options.host;
  target.port = options.port;
  if (!options.url.empty()) {
    ASSIGN_OR_RETURN(const HttpUrl url, parse_url(options.url));
    target.host = url.host;
    target.port = url.port;
    target.tls = url.tls;
    target.prefix = url.path.ends_with("/v1") ? url.path.substr(0, url.path.size() - 3) : url.path;
  }
  target.endpoint = options.backend == "openai-chat" ? "/v1/chat/completions" : "/v1/completions";
  if (!options.endpoint.empty()) target.endpoint = options.endpoint;
  if (!target.endpoint.starts_with('/')) target.endpoint.insert(0, 1, '/');
  target.timeout = std::chrono::seconds(options.request_timeout_s);
  TRY(set_headers(options, target));
  target.fields = Json::Object{{"stream", true}, {"stream_options", Json::Object{{"include_usage", true}}}};
  target.fields.set("temperature", options.temperature);
  if (options.ignore_eos) target.fields.set("ignore_eos", true);
  const std::pair<const char*, double> optional[] = {
      {"top_p", options.top_p}, {"top_k", options.top_k}, {"min_p", options.min_p}};
  for (const auto& [key, value] : optional) {
    if (std::isnan(value)) continue;
    target.fields.set(key, value == std::floor(value) ? Json(static_cast<int64_t>(value)) : Json(value));
  }
  if (!options.extra_body.empty()) {
    auto extra = Json::parse(options.extra_body);
    if (!extra.ok() || !extra->is_object()) return Error{"--extra-body must be a JSON object"};
    target.extra = std::move(*extra);
  }
  return target;
}

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
Attempt find_model(HttpClient& client, LoadTarget& target, const std::string& wanted) {
  if (!wanted.empty()) {
    target.fields.set("model", wanted);
    return {};
  }
  const auto answer = client.send(target.get("/v1/models"), 30s);
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
Attempt probe(HttpClient& client, const LoadTarget& target, LoadPrompt prompt) {
  prompt.output_tokens = 1;
  const auto answer = client.send(target.post(prompt), target.timeout);
  if (!answer.ok()) return {answer.error().message, true};
  return answer->status / 100 == 2 ? Attempt{} : failed_with(*answer);
}

/// Asks for the model's name and for one answer until both succeed or the time is over.
Status wait_until_ready(const LoadOptions& options, LoadTarget& target, const LoadPrompt& prompt) {
  HttpClient client(target.server());
  const int64_t start_us = now_us();
  for (bool said = false;;) {
    Attempt attempt = find_model(client, target, options.model);
    if (attempt.failure.empty() && options.ready_timeout_s > 0) attempt = probe(client, target, prompt);
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

struct TtftTotals {
  double seconds = 0.0;
  double requests = 0.0;
};

/// The server's own times to first token so far, when its /metrics has them under vLLM's names.
std::optional<TtftTotals> server_ttft(const LoadTarget& target) {
  HttpClient client(target.server());
  const auto answer = client.send(target.get("/metrics"), 5s);
  if (!answer.ok() || answer->status != 200) return std::nullopt;
  constexpr std::string_view name = "vllm:time_to_first_token_seconds_";
  TtftTotals totals;
  const std::string_view text = answer->body;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    std::string_view line = text.substr(start, end - start);
    start = end + 1;
    const size_t space = line.rfind(' ');
    if (!line.starts_with(name) || space == std::string_view::npos) continue;
    double value = 0.0;
    std::from_chars(line.data() + space + 1, line.data() + line.size(), value);
    line.remove_prefix(name.size());
    if (line.starts_with("sum")) totals.seconds += value;
    if (line.starts_with("count")) totals.requests += value;
  }
  if (totals.requests == 0.0 && text.find(name) == std::string_view::npos) return std::nullopt;
  return totals;
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

Json result_json(const LoadOptions& options, const LoadReport& report, std::span<const LoadOutcome> outcomes) {
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

std::string result_path(const LoadOptions& options, const LoadReport& report, const std::string& date) {
  std::string name = options.filename;
  if (name.empty()) {
    const std::string model = report.facts.model.substr(report.facts.model.rfind('/') + 1);
    const std::string limit = options.max_concurrency > 0 ? fmt::format("-concurrency{}", options.max_concurrency) : "";
    const std::string label = options.label.empty() ? options.backend : options.label;
    name = fmt::format("{}-{}qps{}-{}-{}.json", label, options.arrivals.rate, limit, model, date);
  }
  return options.directory.empty() ? name : options.directory + "/" + name;
}

Status save(const LoadOptions& options, const LoadReport& report, std::span<const LoadOutcome> outcomes) {
  const Json json = result_json(options, report, options.detailed ? outcomes : std::span<const LoadOutcome>());
  const std::string path = result_path(options, report, json.string("date").value_or(""));
  std::ofstream file(path, std::ios::binary);
  file << json.dump() << '\n';
  if (!file.flush()) return Error{fmt::format("{}: the result cannot be written", path)};
  if (!options.json) fmt::print("saved {}\n", path);
  return {};
}

std::vector<std::string> words_of(std::string_view list) {
  std::vector<std::string> words;
  for (size_t start = 0; start < list.size();) {
    const size_t end = std::min(list.find(',', start), list.size());
    words.emplace_back(list.substr(start, end - start));
    start = end + 1;
  }
  return words;
}

Result<LoadFacts> known_facts(const LoadOptions& options, const LoadTarget& target) {
  LoadFacts facts;
  facts.endpoint = target.endpoint;
  facts.label = options.label;
  facts.chat = target.chat();
  facts.prompts = options.num_prompts;
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
  ASSIGN_OR_RETURN(facts.goodput, parse_goodput(options.goodput));
  return facts;
}

/// Runs the measurement itself; Ctrl-C ends it early, and the program at any other time.
class Measurement {
 public:
  Measurement(const LoadOptions& options, const LoadTarget& target, std::span<const LoadPrompt> prompts)
      : options_(options), target_(target), run_(target, prompts, options.max_concurrency) {}

  void interrupt() { run_.stop(); }

  LoadReport measure(LoadFacts facts) {
    const auto arrivals = arrival_times(options_.arrivals, facts.prompts, static_cast<uint64_t>(options_.seed));
    const std::optional<TtftTotals> before = server_ttft(target_);
    const double cpu = cpu_seconds();
    {
      DoneLine line(facts.prompts, options_.quiet);
      run_.run(arrivals, [&](int done) { line.show(done); });
    }
    facts.cpu_cores = (cpu_seconds() - cpu) / std::max(run_.seconds(), 1e-3);
    const std::optional<TtftTotals> after = before ? server_ttft(target_) : std::nullopt;
    if (after && after->requests > before->requests) {
      facts.server_ttft_ms = 1e3 * (after->seconds - before->seconds) / (after->requests - before->requests);
    }
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
  const LoadOptions& options_;
  const LoadTarget& target_;
  LoadRun run_;
};

/// At each concurrency other prompts, so that the server has seen none of them.
Result<int> sweep_server(LoadOptions& options) {
  options.sweep.limits = options.goodput;
  ASSIGN_OR_RETURN(const Sweep sweep, Sweep::parse(options.sweep));
  if (options.save || options.detailed)
    return Error{"--save-result writes one run; a sweep prints its points with --json"};
  ASSIGN_OR_RETURN(LoadTarget target, make_target(options));
  if (target.chat()) options.prompts.words = true;
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
    LoadFacts facts;
    facts.seconds = run.seconds();
    points.push_back({concurrency, make_report(std::move(facts), run.outcomes())});
    fmt::print("{}", options.json ? point_json(sweep, points.back()).dump() + "\n" : point_line(sweep, points.back()));
    std::fflush(stdout);
  }
  if (!options.json) fmt::print("{}", knee_line(sweep, points));
  return std::ranges::any_of(points, [](const SweepPoint& point) { return point.report.completed > 0; }) ? 0 : 1;
}

Result<int> load_server(LoadOptions& options) {
  TRY(check(options));
  if (!options.sweep.concurrencies.empty()) return sweep_server(options);
  ASSIGN_OR_RETURN(LoadTarget target, make_target(options));
  ASSIGN_OR_RETURN(LoadFacts facts, known_facts(options, target));
  if (target.chat()) options.prompts.words = true;
  // The last prompts are for the check and the warm-up, so that the server has not seen the measured ones.
  const int extra = options.num_warmups + 1;
  ASSIGN_OR_RETURN(const auto prompts,
                   make_prompts(options.prompts, options.num_prompts + extra, static_cast<uint64_t>(options.seed)));
  const auto measured = std::span(prompts).first(static_cast<size_t>(options.num_prompts));
  const auto warmup = std::span(prompts).subspan(measured.size(), static_cast<size_t>(options.num_warmups));
  if (target.chat() && !prompts[0].ids.empty()) {
    return Error{"token ids cannot be sent to a chat endpoint; use /v1/completions"};
  }

  Measurement measurement(options, target, measured);
  std::atomic<Measurement*> running = nullptr;
  const Interrupt interrupt([&](int) {
    Measurement* const now = running.exchange(nullptr);
    if (now == nullptr) std::_Exit(130);
    now->interrupt();
  });
  TRY(wait_until_ready(options, target, prompts.back()));
  facts.model = (target.extra.has("model") ? target.extra : target.fields).string("model").value_or("");
  if (!warmup.empty()) {
    LoadRun run(target, warmup, options.max_concurrency);
    run.run(std::vector<double>(warmup.size(), 0.0));
  }
  running = &measurement;
  const LoadReport report = measurement.measure(std::move(facts));
  running = nullptr;

  fmt::print("{}", options.json ? result_json(options, report, {}).dump() + "\n" : report_table(report));
  if (options.save || options.detailed) TRY(save(options, report, measurement.outcomes()));
  return report.completed > 0 ? 0 : 1;
}

}  // namespace

bool names_a_server(std::span<char* const> arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](std::string_view word) {
    word = word.substr(0, word.find('='));
    return word == "--url" || word == "--base-url" || word == "--base_url" || word == "--host" || word == "--port";
  });
}

int bench_url_command(std::span<char* const> arguments) {
  LoadOptions options;
  Flags flags("quern bench --url URL [flags]: load on a server with the OpenAI API",
              "quern bench --url http://127.0.0.1:8000 --num-prompts 100 --request-rate 4 --goodput ttft:500,tpot:50");
  add_server_flags(flags, options);
  add_traffic_flags(flags, options);
  add_result_flags(flags, options);
  const Status parsed = flags.parse(arguments);
  if (!parsed.ok()) return fail(parsed.error().message);
  if (flags.help_wanted()) {
    fmt::print("{}", flags.help());
    return 0;
  }
  const auto status = load_server(options);
  return status.ok() ? *status : fail(status.error().message);
}

}  // namespace quern
