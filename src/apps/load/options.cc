#include "apps/load/options.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <utility>

namespace quern {
namespace {

constexpr int longest_s = 100'000'000;
constexpr int most_tokens = 10'000'000;
constexpr double least_rate = 1e-6;  // requests a second: the next one is still a time that clocks have
constexpr Bounds a_rate{least_rate, 1e9};

void add_traffic_flags(Flags& flags, LoadTestOptions& options) {
  flags.add("--dataset-name", "NAME", "random, prefix_repetition, sharegpt or custom [random]",
            &options.prompts.dataset);
  flags.add("--dataset-path", "FILE", "sharegpt: JSON; custom: lines with prompt and output_len",
            &options.prompts.path);
  flags.add("--random-input-len", "N", "tokens of a random prompt [1024]", &options.prompts.input_tokens,
            between(1, most_tokens));
  flags.add("--output-len", "N", "tokens to ask for [made prompts: 128; else the dataset's]",
            &options.prompts.output_tokens, between(1, most_tokens));
  flags.add("--random-range-ratio", "R", "lengths vary by this part, 0 to below 1 [0]", &options.prompts.range_ratio,
            between(0, 0.999));
  flags.add("--random-prefix-len", "N", "equal first tokens of all random prompts [0]", &options.prompts.prefix_tokens,
            between(0, most_tokens));
  flags.add("--random-vocab-size", "N", "random token ids are below this [30000]", &options.prompts.vocabulary,
            between(2, INT32_MAX));
  flags.add("--random-text", "random words, not token ids (always so for chat)", &options.prompts.words);
  flags.add("--prefix-repetition-prefix-len", "N", "tokens of each repeated prefix [256]",
            &options.prompts.repeated_tokens, between(1, most_tokens));
  flags.add("--prefix-repetition-suffix-len", "N", "tokens after it, other ones each time [256]",
            &options.prompts.repeated_suffix, between(1, most_tokens));
  flags.add("--prefix-repetition-num-prefixes", "N", "prefixes that take turns [10]", &options.prompts.prefixes,
            between(1, 10'000'000));
  flags.add("--num-prompts", "N", "requests [1000]", &options.num_prompts, between(1, 10'000'000));
  flags.add("--num-warmups", "N", "requests before the measurement, with other prompts [0]", &options.num_warmups,
            between(0, 1'000'000));
  flags.add("--request-rate", "R", "requests per second, or inf: all at once [inf]", &options.arrivals.rate,
            between(least_rate, std::numeric_limits<double>::infinity()));
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
  flags.alias("--prefix-repetition-output-len", "--output-len");
}

void add_server_flags(Flags& flags, LoadTestOptions& options) {
  flags.add("--url", "URL", "the server, as http://HOST:PORT", &options.url);
  flags.alias("--base-url", "--url");
  flags.add("--host", "HOST", "instead of --url [127.0.0.1]", &options.host);
  flags.add("--port", "N", "instead of --url [8000]", &options.port, between(1, 65535));
  flags.add("--endpoint", "PATH", "/v1/completions or /v1/chat/completions", &options.endpoint);
  flags.add("--backend", "NAME", "openai, vllm (completions) or openai-chat [openai]", &options.backend);
  flags.add("--model", "NAME", "[the first that the server lists]", &options.model);
  flags.add("--tokenizer", "PATH", "of the model here, such as its .gguf: exact prompts, and outputs without usage",
            &options.tokenizer);
  flags.add("--prefix-cache", "STATE", "before the run: as-is, cold (is emptied) or warm (gets every prompt) [as-is]",
            &options.prefix_cache);
  flags.add("--api-key", "KEY", "bearer key [OPENAI_API_KEY]", &options.api_key);
  flags.add("--header", "NAME:VALUE", "of every request; can be repeated", &options.headers);
  flags.add("--extra-body", "JSON", "object that is merged into every body", &options.extra_body);
  flags.add("--ignore-eos", "ask for the full output length", &options.ignore_eos);
  flags.add("--temperature", "T", "of sampling [0]", &options.temperature, between(0, 100));
  flags.add("--top-p", "P", "of sampling [the server's]", &options.top_p, between(0, 1));
  flags.add("--top-k", "K", "of sampling [the server's]", &options.top_k, between(-1, INT32_MAX));
  flags.add("--min-p", "P", "of sampling [the server's]", &options.min_p, between(0, 1));
  flags.add("--logprobs", "N", "ask for those of the N best tokens at each place", &options.logprobs, between(0, 1024));
  flags.add("--request-id-prefix", "TEXT", "send x-request-id: TEXT and the number of the request",
            &options.request_id_prefix);
  flags.add("--ready-check-timeout-sec", "N", "wait for the server; 0: no check [600]", &options.ready_timeout_s,
            between(0, longest_s));
  flags.add("--request-timeout-sec", "N", "a longer request has failed [21600]", &options.request_timeout_s,
            between(1, longest_s));
}

void add_result_flags(Flags& flags, LoadTestOptions& options) {
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

Status set_headers(const LoadTestOptions& options, LoadTarget& target) {
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

void set_sampling(const LoadTestOptions& options, LoadTarget& target) {
  target.fields.set("temperature", options.temperature);
  if (options.ignore_eos) target.fields.set("ignore_eos", true);
  const std::pair<const char*, double> optional[] = {
      {"top_p", options.top_p}, {"top_k", options.top_k}, {"min_p", options.min_p}};
  for (const auto& [key, value] : optional) {
    if (std::isnan(value)) continue;
    target.fields.set(key, value == std::floor(value) ? Json(static_cast<int64_t>(value)) : Json(value));
  }
  if (options.logprobs >= 0 && target.chat()) {
    target.fields.set("logprobs", true);
    target.fields.set("top_logprobs", options.logprobs);
  } else if (options.logprobs >= 0) {
    target.fields.set("logprobs", options.logprobs);
  }
  if (options.backend != "vllm" || target.chat()) return;
  target.fields.set("repetition_penalty", 1.0);
  if (options.logprobs < 0) target.fields.set("logprobs", Json());
}

}  // namespace

void add_load_flags(Flags& flags, LoadTestOptions& options) {
  add_server_flags(flags, options);
  add_traffic_flags(flags, options);
  add_result_flags(flags, options);
}

std::vector<std::string> with_lists_apart(std::span<char* const> arguments) {
  static constexpr std::array<std::string_view, 3> lists = {"--goodput", "--header", "--metadata"};
  std::vector<std::string> words;
  std::string_view list;
  bool first = false;  // of the list
  for (const std::string_view word : arguments) {
    if (word.starts_with('-')) {
      const bool is_list = std::ranges::find(lists, word) != lists.end();
      list = is_list ? word : "";
      first = is_list;
    } else if (!list.empty() && !std::exchange(first, false)) {
      words.emplace_back(list);
    }
    words.emplace_back(word);
  }
  return words;
}

Status check(const LoadTestOptions& options) {
  const ArrivalOptions& arrivals = options.arrivals;
  if (!arrivals.ramp.empty() && arrivals.ramp != "linear" && arrivals.ramp != "exponential") {
    return Error{fmt::format("--ramp-up-strategy {} is unknown; there are linear and exponential", arrivals.ramp)};
  }
  if (!arrivals.ramp.empty() && (arrivals.ramp_start == 0 || arrivals.ramp_end == 0)) {
    return Error{"--ramp-up-strategy needs --ramp-up-start-rps and --ramp-up-end-rps"};
  }
  if (!arrivals.ramp.empty() && std::isfinite(arrivals.rate)) {
    return Error{"--ramp-up-strategy says what the rate is; leave --request-rate out"};
  }
  if (arrivals.ramp.empty() && (arrivals.ramp_start != 0 || arrivals.ramp_end != 0)) {
    return Error{"--ramp-up-start-rps and --ramp-up-end-rps need --ramp-up-strategy"};
  }
  if (options.backend != "openai" && options.backend != "vllm" && options.backend != "openai-chat") {
    return Error{fmt::format("--backend {} is unknown; there are openai, vllm and openai-chat", options.backend)};
  }
  const std::string& cache = options.prefix_cache;
  if (cache != "as-is" && cache != "cold" && cache != "warm") {
    return Error{fmt::format("--prefix-cache {} is unknown; there are as-is, cold and warm", cache)};
  }
  for (const std::string& pair : options.metadata) {
    if (pair.find('=') == std::string::npos) return Error{fmt::format("--metadata {}: expected KEY=VALUE", pair)};
  }
  return {};
}

Result<LoadTarget> make_target(const LoadTestOptions& options) {
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
  set_sampling(options, target);
  if (!options.extra_body.empty()) {
    auto extra = Json::parse(options.extra_body);
    if (!extra.ok() || !extra->is_object()) return Error{"--extra-body must be a JSON object"};
    target.extra = std::move(*extra);
  }
  return target;
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

}  // namespace quern
