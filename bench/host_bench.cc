// What the engine costs beside the model: host time of a step, admission of a cached prompt, memory that holds no
// token, and what paging gives over reserving. The device is the oracle, which takes no time of its own here.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "engine/oracle.h"
#include "engine/scheduler.h"
#include "model/families/family.h"
#include "model/spec.h"

namespace quern {
namespace {

class CountingSink final : public EventSink {
 public:
  void deliver(TokenEvent event) override {
    tokens += static_cast<int64_t>(event.tokens.size());
    cached = event.cached_tokens;
    ended += event.finish.has_value();
  }
  int64_t tokens = 0;
  int cached = 0;
  int ended = 0;
};

void print(const char* what, double value, const char* unit, const char* must, const char* aim) {
  std::printf("%s: %.2f %s (must %s, aim %s)\n", what, value, unit, must, aim);
}

/// Requests of one prompt length each, on a scheduler with the oracle as device.
struct Bench {
  explicit Bench(const EngineOptions& options_)
      : options(options_),
        scheduler(options),
        device(OracleModel{.vocab = 1000}, options.groups, options.pages, options.max_num_seqs, false) {}

  void add(int prompt, int max_tokens, int first_token) {
    Request request;
    request.id = RequestId{++requests};
    for (int i = 0; i < prompt; ++i) request.prompt.push_back((first_token + i * 7) % 1000);
    request.max_tokens = max_tokens;
    request.sink = sink;
    scheduler.add(Arrival(std::move(request)));
  }

  /// One step planned and the oldest one committed; the host's part in microseconds.
  double step() {
    const auto start = std::chrono::steady_clock::now();
    while (scheduler.steps_in_flight() < options.depth) {
      StepPlan plan = scheduler.plan(now_us());
      if (plan.slices.empty()) break;
      in_flight.push_back(std::move(plan));
    }
    const auto planned = std::chrono::steady_clock::now();
    if (in_flight.empty()) return 0;
    StepResult result = device.run(in_flight.front(), {});
    slices = in_flight.front().slices.size();
    in_flight.pop_front();
    const auto back = std::chrono::steady_clock::now();
    scheduler.commit(std::move(result), now_us());
    const auto end = std::chrono::steady_clock::now();
    return std::chrono::duration<double, std::micro>((planned - start) + (end - back)).count();
  }
  void drain() {
    while (!scheduler.idle()) step();
  }

  EngineOptions options;
  Scheduler scheduler;
  OracleDevice device;
  std::shared_ptr<CountingSink> sink = std::make_shared<CountingSink>();
  std::deque<StepPlan> in_flight;
  uint64_t requests = 0;
  size_t slices = 0;
};

EngineOptions options_of(int pages, int sequences, int step_tokens, int max_len) {
  EngineOptions options;
  options.pages = pages;
  options.max_num_seqs = sequences;
  options.max_num_batched_tokens = step_tokens;
  options.max_model_len = max_len;
  return options;
}

/// Median over many decoding steps, with some requests ending and new ones coming all the time.
double host_us_per_step(int sequences) {
  Bench bench(options_of(sequences * 80 + 100, sequences, std::max(512, sequences * 2), 1200));
  std::vector<double> times;
  for (int i = 0; i < 1500; ++i) {
    while (static_cast<int>(bench.requests) - bench.sink->ended < sequences) {
      bench.add(300, 200 + static_cast<int>(bench.requests * 37 % 400), static_cast<int>(bench.requests * 13));
    }
    const double time = bench.step();
    if (i >= 300) times.push_back(time);
  }
  std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
  return times[times.size() / 2];
}

/// The engine thread's time for a prompt whose pages are all cached, less that of a prompt of one token.
double admission_us(int prompt) {
  Bench bench(options_of(prompt / 16 + 200, 8, 2048, prompt + 100));
  bench.add(prompt, 1, 1);
  bench.drain();
  double best = 1e9;
  for (int i = 0; i < 9; ++i) {
    bench.add(1, 1, 900 + i);
    const double alone = bench.step();
    bench.drain();
    bench.add(prompt, 1, 1);
    const double cached = bench.step();
    bench.drain();
    if (bench.sink->cached == prompt - 1) best = std::min(best, cached - alone);
  }
  return best;
}

int log_uniform(std::mt19937_64& random, int low, int high) {
  return static_cast<int>(std::exp(std::uniform_real_distribution<double>(std::log(low), std::log(high))(random)));
}

/// Cells of granted pages that hold no token, while 64 sequences of these lengths run.
double unused_percent() {
  std::mt19937_64 random(7);
  EngineOptions options = options_of(64 * 130, 64, 2048, 2100);
  options.prefix_caching = false;
  Bench bench(options);
  int64_t tokens = 0;
  for (int i = 0; i < 64; ++i) {
    const int length = log_uniform(random, 64, 2048);
    tokens += length;
    bench.add(length, 52, i * 11);
  }
  for (int i = 0; i < 40; ++i) bench.step();  // all prompts are in, no answer has ended
  const EngineStats stats = bench.scheduler.stats();
  tokens += stats.generation_tokens;
  const int64_t cells = int64_t{16} * (stats.pages_total - stats.pages_free);
  return 100.0 * (1.0 - static_cast<double>(tokens) / static_cast<double>(cells));
}

/// Tokens per second of a model whose step takes a fixed time and a little more for each token.
double tokens_per_second(bool reserve) {
  std::mt19937_64 random(11);
  EngineOptions options = options_of(1024, 64, 512, 2048);
  options.reserve_max_len = reserve;
  Bench bench(options);
  for (int i = 0; i < 300; ++i) bench.add(log_uniform(random, 16, 512), log_uniform(random, 16, 512), i * 17);
  double seconds = 0;
  while (!bench.scheduler.idle()) {
    bench.step();
    seconds += 0.010 + 0.0001 * static_cast<double>(bench.slices);
  }
  return static_cast<double>(bench.sink->tokens) / seconds;
}

/// KV bytes of one sequence of 8,192 tokens of a model shaped like Gemma 3 1B, over those of its full layers for all
/// tokens and of its window layers for a window.
double gemma_bytes_over_formula() {
  const auto config = Json::parse(R"({"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
      "hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26, "num_attention_heads": 4,
      "num_key_value_heads": 1, "head_dim": 256, "sliding_window": 512, "sliding_window_pattern": 6,
      "query_pre_attn_scalar": 256, "max_position_embeddings": 32768, "vocab_size": 262144})");
  const DecoderSpec spec = make_spec(*config).value();
  const KvLayout kv = kv_layout(spec, 2);
  EngineOptions options = options_of(1 << 16, 1, 512, 8300);
  options.prefix_caching = false;
  options.groups.clear();
  for (const KvGroup& group : kv.groups) {
    const auto kind = group.window > 0 ? GroupSpec::Kind::window : GroupSpec::Kind::full;
    options.groups.push_back({kind, group.window, kv.page_tokens});
  }
  Bench bench(options);
  bench.add(8192, 64, 1);
  for (int i = 0; i < 40; ++i) bench.step();  // the prompt is in, the answer goes on
  const EngineStats stats = bench.scheduler.stats();
  const auto tokens = static_cast<double>(8192 + stats.generation_tokens);
  double formula = 0;
  for (const LayerSpec& layer : spec.layers) {
    const auto& attention = std::get<AttentionSpec>(layer.mixer);
    const double bytes = 2.0 * 2 * attention.kv_heads * attention.head_dim;
    formula += bytes * (attention.window > 0 ? attention.window : tokens);
  }
  return static_cast<double>(stats.pages_total - stats.pages_free) * static_cast<double>(kv.page_bytes) / formula;
}

}  // namespace
}  // namespace quern

int main() {
  using namespace quern;
  print("host time per step, oracle executor, 1 sequence", host_us_per_step(1), "us", "<= 50", "15");
  print("host time per step, oracle executor, 8 sequences", host_us_per_step(8), "us", "-", "-");
  print("host time per step, oracle executor, 64 sequences", host_us_per_step(64), "us", "-", "-");
  print("host time per step, oracle executor, 256 sequences", host_us_per_step(256), "us", "<= 300", "150");
  print("4,096-token prefix hit minus 1-token prompt, engine thread", admission_us(4096) * 1e-3, "ms", "<= 20", "8");
  print("131,072-token prefix hit minus 1-token prompt, engine thread", admission_us(131072) * 1e-3, "ms", "<= 1", "-");
  print("KV memory not holding a token, 64 sequences log-uniform 64-2,048", unused_percent(), "%", "< 3", "< 2");
  print("Gemma-3-shaped model at 8k, KV bytes over the formula", gemma_bytes_over_formula(), "x", "<= 1.05", "1.02");
  print("paged against reserving max-model-len, same KV bytes, model of a step",
        tokens_per_second(false) / tokens_per_second(true), "x", ">= 2", "3");
  return 0;
}
