// Metrics: counters and histograms of one model as Prometheus text, under vLLM's names. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/guarded.h"
#include "engine/engine.h"

namespace quern {

class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);
  void observe(double value) { observe_many(value, 1); }
  void observe_many(double value, int64_t times);
  /// All samples at once, counted elsewhere: `buckets` as here.
  void set(std::span<const int64_t> buckets, double sum);
  int64_t count() const;
  double sum() const { return sum_.load(std::memory_order_relaxed); }
  const std::vector<double>& bounds() const { return bounds_; }
  /// Samples of at most the bound number `i`, the last one being infinity.
  int64_t up_to(size_t i) const;

 private:
  const std::vector<double> bounds_;
  std::deque<std::atomic<int64_t>> buckets_;
  std::atomic<double> sum_ = 0;
};

using Counter = std::atomic<int64_t>;

/// Reasons for which a request was not admitted, and for which one ended.
enum class Refusal : uint8_t { queue_full, too_long, invalid, draining, unauthorized, not_loaded };
enum class Ended : uint8_t { stop, length, abort, error };

/// A figure of the moment that is not the server's own.
struct Gauge {
  std::string name;
  std::string help;
  std::string labels;  // ",owner=\"weights\"", or nothing
  double value = 0.0;
};

class MetricsPage;  // the text being written

class Metrics {
 public:
  Metrics(std::string model_name, int32_t max_model_len, int32_t block_tokens, bool prefix_caching);

  Counter prompt_tokens{0};
  Counter generation_tokens{0};
  Counter cached_tokens{0};
  Counter disconnected{0};
  Counter tool_calls{0};
  Counter streams_open{0};
  std::array<Counter, 4> ended{};    // by Ended
  std::array<Counter, 6> refused{};  // by Refusal
  Histogram first_token_s, inter_token_s, token_mean_s;
  Histogram e2e_s, queue_s, inference_s, prefill_s, decode_s;
  Histogram prompt_size, generation_size, most_tokens, max_tokens, n, computed_size;
  Histogram iteration_tokens;

  void count(Ended reason) { ended[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed); }
  void count(Refusal reason) { refused[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed); }
  /// Every series of the model.
  void write(MetricsPage& page, const EngineStats& stats, double last_step_age_s, std::span<const Gauge> more = {},
             int sleep_level = 0);

 private:
  struct SeenSteps {
    int64_t device_us = 0;
    int64_t at_us = 0;
  };
  /// The share of the time since the last scrape in which the device worked.
  double see_steps(const EngineStats& stats);
  void write_requests(MetricsPage& page) const;
  void write_latencies(MetricsPage& page) const;

  const std::string labels_;  // model_name and engine
  const int32_t block_tokens_;
  const bool prefix_caching_;
  Guarded<SeenSteps> seen_steps_;  // at the last scrape
};

}  // namespace quern
