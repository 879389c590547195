#include "server/metrics/metrics.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <utility>

#include "base/clock.h"
#include "server/metrics/page.h"

namespace quern {
namespace {

std::vector<double> token_latency_bounds() {
  return {.0005, .001, .0025, .005, .0075, .01, .025, .05, .075, .1, .15, .2,
          .3,    .4,   .5,    .75,  1,     2.5, 5,    7.5, 10,   20, 40,  80};
}
std::vector<double> request_latency_bounds() {
  return {.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
}

/// 1, 2, 5, 10 ... up to `limit`.
std::vector<double> one_two_five(int32_t limit) {
  std::vector<double> bounds;
  for (double decade = 1; decade <= limit; decade *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) {
      if (decade * step <= limit) bounds.push_back(decade * step);
    }
  }
  return bounds;
}

/// A label value: backslash, quote and line break are escaped.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out;
}

void write_engine(MetricsPage& page, const EngineStats& stats, int32_t block_tokens, bool prefix_caching) {
  const double used = stats.pages_total == 0
                          ? 0
                          : static_cast<double>(stats.pages_total - stats.pages_free - stats.pages_cached) /
                                static_cast<double>(stats.pages_total);
  page.gauge("vllm:num_requests_running", stats.running, "Requests in the running batch.");
  page.gauge("vllm:num_requests_waiting", stats.waiting, "Requests waiting for a place in the batch.");
  page.family("vllm:num_requests_waiting_by_reason", "gauge", "Requests waiting, by reason.");
  page.sample("vllm:num_requests_waiting_by_reason", stats.waiting, ",reason=\"capacity\"");
  page.sample("vllm:num_requests_waiting_by_reason", 0, ",reason=\"deferred\"");
  page.gauge("vllm:kv_cache_usage_perc", used, "Share of KV pages that requests use, 0 to 1.");
  page.gauge("vllm:gpu_cache_usage_perc", used, "The same under its old name.");
  page.family("vllm:cache_config_info", "gauge", "Facts about the KV cache, as labels.");
  page.sample("vllm:cache_config_info", 1,
              fmt::format(",block_size=\"{}\",num_gpu_blocks=\"{}\",enable_prefix_caching=\"{}\"", block_tokens,
                          stats.pages_total, prefix_caching ? "True" : "False"));
  page.family("vllm:lora_requests_info", "gauge",
              "Adapters in use, as labels; the value is the time of the last change.");
  page.sample("vllm:lora_requests_info", 0, ",max_lora=\"0\",running_lora_adapters=\"\",waiting_lora_adapters=\"\"");
  for (const std::string_view prefix : {"vllm:", "vllm:gpu_"}) {
    page.counter(fmt::format("{}prefix_cache_queries_total", prefix), stats.prefix_queries_tokens,
                 "Prompt tokens looked up in the prefix cache.");
    page.counter(fmt::format("{}prefix_cache_hits_total", prefix), stats.prefix_hits_tokens,
                 "Prompt tokens found in the prefix cache.");
  }
  page.gauge("vllm:gpu_prefix_cache_hit_rate",
             stats.prefix_queries_tokens == 0
                 ? 0
                 : static_cast<double>(stats.prefix_hits_tokens) / static_cast<double>(stats.prefix_queries_tokens),
             "Prompt tokens found in the prefix cache, as a share.");
  for (const std::string_view name : {"external_prefix_cache", "mm_cache"}) {
    page.counter(fmt::format("vllm:{}_queries_total", name), 0, "Not used by this server.");
    page.counter(fmt::format("vllm:{}_hits_total", name), 0, "Not used by this server.");
  }
  page.counter("vllm:num_preemptions_total", stats.preemptions,
               "Requests that lost their pages to others and started again.");
  page.counter("vllm:corrupted_requests_total", stats.corrupted,
               "Requests that ended with logits that are no numbers.");
  for (const std::string_view name : {"drafts", "draft_tokens", "accepted_tokens"}) {
    page.counter(fmt::format("vllm:spec_decode_num_{}_total", name), 0,
                 "Speculative decoding; not used by this server.");
  }
  page.family("vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter",
              "Speculative decoding; not used by this server.");
  page.sample("vllm:spec_decode_num_accepted_tokens_per_pos_total", 0, ",position=\"0\"");
}

void write_sleep(MetricsPage& page, int level) {
  page.family("vllm:engine_sleep_state", "gauge", "Whether the engine sleeps.");
  static constexpr std::array<std::string_view, 3> names = {"awake", "weights_offloaded", "discard_all"};
  for (size_t i = 0; i < names.size(); ++i) {
    page.sample("vllm:engine_sleep_state", static_cast<size_t>(level) == i ? 1 : 0,
                fmt::format(",sleep_state=\"{}\"", names[i]));
  }
}

void write_own(MetricsPage& page, const EngineStats& stats, double last_step_age_s) {
  page.gauge("quern_kv_pages", stats.pages_total, "Pages of the KV pool.");
  page.gauge("quern_kv_pages_free", stats.pages_free, "Pages neither used nor cached.");
  page.gauge("quern_kv_pages_cached", stats.pages_cached, "Pages that only the prefix cache holds.");
  page.counter("quern_engine_steps_total", stats.steps, "Steps of the engine.");
  page.counter("quern_engine_prompt_tokens_total", stats.prompt_tokens, "Prompt tokens computed.");
  page.counter("quern_engine_generation_tokens_total", stats.generation_tokens,
               "Tokens generated, with those cut off later.");
  page.counter("quern_engine_host_seconds_total", static_cast<double>(stats.host_us) * 1e-6, "Host time in steps.");
  page.counter("quern_engine_device_seconds_total", static_cast<double>(stats.device_us) * 1e-6,
               "Device time in steps.");
  page.gauge("quern_engine_last_step_tokens", stats.step_tokens_last, "Tokens of the last step.");
  page.gauge("quern_engine_last_step_age_seconds", last_step_age_s,
             "Time since the engine last made progress while it had work.");
  page.gauge("quern_engine_dead", stats.dead ? 1 : 0, "1 when the device has failed.");
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), buckets_(bounds_.size() + 1) {}

void Histogram::observe_many(double value, int64_t times) {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  buckets_[static_cast<size_t>(at)].fetch_add(times, std::memory_order_relaxed);
  const double added = value * static_cast<double>(times);
  double sum = sum_.load(std::memory_order_relaxed);
  while (!sum_.compare_exchange_weak(sum, sum + added, std::memory_order_relaxed)) {
  }
}

void Histogram::set(std::span<const int64_t> buckets, double sum) {
  for (size_t i = 0; i < buckets_.size(); ++i) buckets_[i].store(buckets[i], std::memory_order_relaxed);
  sum_.store(sum, std::memory_order_relaxed);
}

int64_t Histogram::up_to(size_t i) const {
  return std::accumulate(buckets_.begin(), buckets_.begin() + static_cast<int64_t>(i) + 1, int64_t{0},
                         [](int64_t sum, const auto& bucket) { return sum + bucket.load(std::memory_order_relaxed); });
}

int64_t Histogram::count() const { return up_to(bounds_.size()); }

Metrics::Metrics(std::string model_name, int32_t max_model_len, int32_t block_tokens, bool prefix_caching)
    : first_token_s(
          {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}),
      inter_token_s(token_latency_bounds()),
      token_mean_s(token_latency_bounds()),
      e2e_s(request_latency_bounds()),
      queue_s(request_latency_bounds()),
      inference_s(request_latency_bounds()),
      prefill_s(request_latency_bounds()),
      decode_s(request_latency_bounds()),
      prompt_size(one_two_five(max_model_len)),
      generation_size(one_two_five(max_model_len)),
      most_tokens(one_two_five(max_model_len)),
      max_tokens(one_two_five(max_model_len)),
      n({1, 2, 5, 10, 20}),
      computed_size(one_two_five(max_model_len)),
      iteration_tokens({step_size_bounds.begin(), step_size_bounds.end()}),
      labels_(fmt::format("model_name=\"{}\",engine=\"0\"", escaped(model_name))),
      block_tokens_(block_tokens),
      prefix_caching_(prefix_caching) {}

double Metrics::see_steps(const EngineStats& stats) {
  iteration_tokens.set(stats.steps_by_tokens, static_cast<double>(stats.prompt_tokens + stats.generation_tokens));
  const SeenSteps now{stats.device_us, now_us()};
  const SeenSteps before = seen_steps_.with([&](SeenSteps& seen) { return std::exchange(seen, now); });
  const int64_t passed_us = std::max<int64_t>(1, now.at_us - before.at_us);
  return std::min(1.0, static_cast<double>(now.device_us - before.device_us) / static_cast<double>(passed_us));
}

void Metrics::write(MetricsPage& page, const EngineStats& stats, double last_step_age_s, std::span<const Gauge> more,
                    int sleep_level) {
  page.set_labels(labels_);
  page.gauge("quern_gpu_busy_ratio", see_steps(stats),
             "Share of the time since the last scrape in which steps were computed.");
  for (const Gauge& gauge : more) {
    page.family(gauge.name, "gauge", gauge.help);
    page.sample(gauge.name, gauge.value, gauge.labels);
  }
  write_engine(page, stats, block_tokens_, prefix_caching_);
  write_sleep(page, sleep_level);
  write_requests(page);
  write_latencies(page);
  write_own(page, stats, last_step_age_s);
}

void Metrics::write_requests(MetricsPage& page) const {
  page.counter("vllm:prompt_tokens_total", prompt_tokens.load(), "Prompt tokens of requests.");
  page.counter("vllm:generation_tokens_total", generation_tokens.load(), "Tokens of answers.");
  page.counter("vllm:prompt_tokens_cached_total", cached_tokens.load(),
               "Prompt tokens of requests that came from the prefix cache.");
  page.family("vllm:prompt_tokens_by_source_total", "counter",
              "Prompt tokens of requests by where their KV came from.");
  page.sample("vllm:prompt_tokens_by_source_total", prompt_tokens.load() - cached_tokens.load(),
              ",source=\"local_compute\"");
  page.sample("vllm:prompt_tokens_by_source_total", cached_tokens.load(), ",source=\"local_cache_hit\"");

  page.counter("vllm:tool_call_parser_invocations_total", tool_calls.load(), "Tool calls found in answers.");
  page.family("vllm:request_success_total", "counter", "Requests that ended, by reason.");
  static constexpr std::array<std::string_view, 4> reasons = {"stop", "length", "abort", "error"};
  for (size_t i = 0; i < reasons.size(); ++i) {
    page.sample("vllm:request_success_total", ended[i].load(), fmt::format(",finished_reason=\"{}\"", reasons[i]));
  }
  page.sample("vllm:request_success_total", 0, ",finished_reason=\"repetition\"");

  page.family("quern_requests_refused_total", "counter", "Requests that were not admitted, by reason.");
  static constexpr std::array<std::string_view, 6> refusals = {"queue_full", "too_long",     "invalid",
                                                               "draining",   "unauthorized", "not_loaded"};
  for (size_t i = 0; i < refusals.size(); ++i) {
    page.sample("quern_requests_refused_total", refused[i].load(), fmt::format(",reason=\"{}\"", refusals[i]));
  }
  page.counter("quern_requests_disconnected_total", disconnected.load(), "Requests whose client went away.");
  page.gauge("quern_streams_open", streams_open.load(), "Answers being made.");
}

void Metrics::write_latencies(MetricsPage& page) const {
  page.histogram("vllm:time_to_first_token_seconds", first_token_s, "From the request to its first token.");
  page.histogram("vllm:inter_token_latency_seconds", inter_token_s, "Between two tokens.");
  page.histogram("vllm:time_per_output_token_seconds", inter_token_s, "The same under its old name.");
  page.histogram("vllm:request_time_per_output_token_seconds", token_mean_s, "Mean time of a token after the first.");
  page.histogram("vllm:e2e_request_latency_seconds", e2e_s, "From the request to its end.");
  page.histogram("vllm:request_queue_time_seconds", queue_s, "Waiting for a place in the batch.");
  page.histogram("vllm:request_inference_time_seconds", inference_s, "In the batch.");
  page.histogram("vllm:request_prefill_time_seconds", prefill_s, "In the batch up to the first token.");
  page.histogram("vllm:request_decode_time_seconds", decode_s, "From the first token to the last.");
  page.histogram("vllm:request_prompt_tokens", prompt_size, "Prompt tokens of a request.");
  page.histogram("vllm:request_generation_tokens", generation_size, "Tokens of an answer.");
  page.histogram("vllm:request_max_num_generation_tokens", most_tokens, "Tokens of a request's longest answer.");
  page.histogram("vllm:request_params_max_tokens", max_tokens, "The max_tokens of requests.");
  page.histogram("vllm:request_params_n", n, "The n of requests.");
  page.histogram("vllm:request_prefill_kv_computed_tokens", computed_size,
                 "Prompt tokens of a request that had to be computed.");
  page.histogram("vllm:iteration_tokens_total", iteration_tokens,
                 "Tokens of a step; steps between two scrapes count as equally large.");
}

}  // namespace quern
