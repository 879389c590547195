// quern bench: a model's speed beside the limits of this machine, both measured in the same run.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <optional>
#include <string>

#include "apps/bench_url.h"
#include "apps/commands.h"
#include "apps/instance.h"
#include "apps/load/sweep.h"
#include "apps/measure/machine_limits.h"
#include "apps/measure/step_profile.h"
#include "apps/measure/streams.h"
#include "base/clock.h"
#include "base/thread_pool.h"

namespace quern {
namespace {

constexpr Bounds counts = between(1, 1 << 20);  // of tokens and requests

struct BenchOptions {
  InstanceOptions instance;
  std::vector<int> prompts{128, 512, 2048};
  std::vector<int> batches{1, 2, 4, 8, 16};
  std::string workloads;
  std::vector<int> hits;
  std::vector<int> mixed;
  std::string limits;
  std::string profile;
  SweepOptions sweep;
  int context = 16;
  int output_tokens = 64;
  int repeats = 3;
  bool json = false;
};

using Workload = std::array<int, 3>;  // tokens in, tokens out, requests

struct Figure {
  double tokens_per_second = 0.0;
  double milliseconds = 0.0;   // of the prompt, or of one decoding step
  double limit_percent = 0.0;  // of what the limits allow for the same work
};

/// What a model's steps must read and compute.
class Work {
 public:
  explicit Work(const Instance& instance) {
    const DecoderSpec& spec = instance.spec();
    vocabulary_ = static_cast<double>(spec.vocab) * spec.dim;
    for (const LayerSpec& layer : spec.layers) {
      const auto add_part = [&](const auto& part) { add(part, spec.dim); };
      std::visit(add_part, layer.mixer);
      std::visit(add_part, layer.ffn);
    }
    double tables = vocabulary_ * (spec.tied ? 1 : 2);  // embedding and output matrix
    if (spec.layer_input) {
      const double inputs = static_cast<double>(spec.layers.size()) * spec.layer_input->dim;
      tables += spec.layer_input->vocab * inputs;
      dense_ += 3.0 * spec.dim * inputs;
    }
    const auto bytes = static_cast<double>(instance.memory.weights);
    weight_bytes_ = bytes / (dense_ + experts_ + tables);
    output_bytes_ = weight_bytes_;
    const KvLayout kv = kv_layout(spec, 2);
    kv_bytes_ =
        static_cast<double>(instance.memory.kv_page_bytes) * static_cast<double>(kv.groups.size()) / kv.page_tokens;
    state_bytes_ = static_cast<double>(kv.state_bytes);
    if (instance.options.quantization == "fp8") {
      rate_ = fp8_rate;
      output_bytes_ = 2;  // these stay as they are
      weight_bytes_ = (bytes - output_bytes_ * tables) / (dense_ + experts_);
    }
  }

  /// The least time of a step of `batch` tokens, each after `context` others (facts of rooflines: weights or
  /// arithmetic, then the keys and values).
  double decode_seconds(double batch, double context, const MachineLimits& limits) const {
    const double touched = experts_ * (1 - std::pow(1 - used_, batch));
    const double bytes = weight_bytes_ * (dense_ + touched) + output_bytes_ * vocabulary_;
    const double flops = 2 * batch * (dense_ + experts_ * used_ + vocabulary_);
    return std::max(bytes / limits.read_bytes_per_second, flops / (rate_ * limits.flops_per_second)) +
           batch * (context * kv_bytes_ + 2 * state_bytes_) / limits.read_bytes_per_second;
  }
  /// The least time of a prompt: one pass over the weights, or the arithmetic of its products and causal scores.
  double prefill_seconds(double tokens, const MachineLimits& limits) const {
    const double touched = experts_ * (1 - std::pow(1 - used_, tokens));
    const double flops = 2 * tokens * (dense_ + experts_ * used_) + score_flops_ * tokens * tokens / 2;
    const double bytes = weight_bytes_ * (dense_ + touched) + output_bytes_ * vocabulary_;
    return std::max(bytes / limits.read_bytes_per_second, flops / (rate_ * limits.flops_per_second));
  }

 private:
  void add(const AttentionSpec& attention, double dim) {
    dense_ += dim * attention.head_dim * (2 * attention.heads + 2 * attention.kv_heads);
    score_flops_ += 4.0 * attention.heads * attention.head_dim;
  }
  void add(const SharedAttentionSpec& attention, double dim) {
    dense_ += 2 * dim * attention.head_dim * attention.heads;
    score_flops_ += 4.0 * attention.heads * attention.head_dim;
  }
  void add(const MlaSpec& mla, double dim) {
    const double query = mla.heads * (mla.plain_dim + mla.rope.dims);
    dense_ += mla.q_rank > 0 ? mla.q_rank * (dim + query) : dim * query;
    dense_ += dim * mla.cached_dim() + 1.0 * mla.kv_rank * mla.heads * (mla.plain_dim + mla.value_dim);
    dense_ += dim * mla.heads * mla.value_dim;
    score_flops_ += 2.0 * mla.heads * (mla.cached_dim() + mla.kv_rank);
  }
  void add(const DeltaNetSpec& delta, double dim) {
    dense_ += dim * (delta.channels() + 2.0 * delta.values() + 2.0 * delta.value_heads);
  }
  void add(const ShortConvSpec& /*conv*/, double dim) { dense_ += 4 * dim * dim; }
  void add(const FfnSpec& gated, double dim) { dense_ += 3 * dim * gated.hidden; }
  void add(const PlainFfnSpec& plain, double dim) { dense_ += 2 * dim * plain.hidden; }
  void add(const MoeSpec& moe, double dim) {
    dense_ += dim * moe.experts + 3 * dim * moe.shared_hidden;
    experts_ += 3 * dim * moe.hidden * moe.experts;
    used_ = static_cast<double>(moe.router.used) / moe.experts;
  }
  void add(const FfnWithExpertsSpec& both, double dim) {
    add(both.ffn, dim);
    add(both.experts, dim);
  }

  // Numbers of weights: that every token meets, of all experts, of the output matrix.
  double dense_ = 0.0, experts_ = 0.0, vocabulary_ = 0.0;
  double used_ = 1.0;                               // part of the experts that a token meets
  double weight_bytes_ = 0.0, output_bytes_ = 0.0;  // of one weight
  double kv_bytes_ = 0.0;                           // of one token
  double state_bytes_ = 0.0;                        // of one sequence, read and written in a step
  double score_flops_ = 0.0;
  double rate_ = 1.0;  // of the arithmetic, in parts of the limit's
};

class Bench {
 public:
  Bench(Instance& instance, const BenchOptions& options, const MachineLimits& limits)
      : streams_(instance), work_(instance), options_(options), limits_(limits) {}

  Result<Figure> prefill(int tokens) {
    double best = 1e9;
    for (int i = 0; i < options_.repeats; ++i) {
      ASSIGN_OR_RETURN(const StreamTimes times, streams_.run(1, tokens, 1));
      best = std::min(best, times.first_token_seconds);
    }
    return Figure{tokens / best, best * 1e3, 100 * work_.prefill_seconds(tokens, limits_) / best};
  }

  /// `batch` streams that run together; the time of a step when all of them decode.
  Result<Figure> decode(int batch) {
    double best = 1e9;
    for (int i = 0; i < options_.repeats; ++i) {
      ASSIGN_OR_RETURN(const StreamTimes times, streams_.run(batch, options_.context, options_.output_tokens));
      if (times.step_seconds > 0) best = std::min(best, times.step_seconds);
    }
    const double context = options_.context + options_.output_tokens / 2.0;
    return Figure{batch / best, best * 1e3, 100 * work_.decode_seconds(batch, context, limits_) / best};
  }

  /// INPUTxOUTPUTxCOUNT, all at once: output tokens of the whole run.
  Result<Figure> workload(const Workload& sizes) {
    const auto [input, output, count] = sizes;
    StreamTimes best{.seconds = 1e9};
    for (int i = 0; i < options_.repeats; ++i) {
      ASSIGN_OR_RETURN(const StreamTimes times, streams_.run(count, input, output));
      if (times.seconds < best.seconds) best = times;
    }
    const double least = output * work_.decode_seconds(count, input + output / 2.0, limits_) +
                         count * work_.prefill_seconds(input, limits_);
    return Figure{static_cast<double>(best.output_tokens) / best.seconds, best.seconds * 1e3,
                  100 * least / best.seconds};
  }

  /// p50 and p99 of the gaps between the tokens of so many streams while a prompt of 8,192 tokens comes every second.
  Result<std::array<Figure, 2>> mixed(int count) {
    constexpr int long_prompt = 8192;
    ASSIGN_OR_RETURN(const GapTimes times, streams_.mixed(count, long_prompt, 4));
    const double least = work_.decode_seconds(count, 1024, limits_);
    const auto figure = [&](double seconds) { return Figure{count / seconds, seconds * 1e3, 100 * least / seconds}; };
    return std::array{figure(times.p50_seconds), figure(times.p99_seconds)};
  }

  Result<Figure> hit(int tokens) {
    double best = 1e9;
    for (int i = 0; i < options_.repeats; ++i) {
      ASSIGN_OR_RETURN(const double seconds, streams_.hit(tokens));
      best = std::min(best, seconds);
    }
    return Figure{1 / best, best * 1e3, 100 * work_.decode_seconds(1, tokens, limits_) / best};
  }

 private:
  Streams streams_;
  Work work_;
  const BenchOptions& options_;
  const MachineLimits& limits_;
};

/// "1024x128x256,...".
Result<std::vector<Workload>> parse_workloads(const std::string& list) {
  std::vector<Workload> made;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string text = list.substr(begin, end - begin);
    Workload sizes{};
    int used = 0;
    const int read = std::sscanf(text.c_str(), "%8dx%8dx%8d%n", &sizes[0], &sizes[1], &sizes[2], &used);
    const bool whole = read == 3 && used == static_cast<int>(text.size());
    if (!whole || !std::ranges::all_of(sizes, [](int n) { return n >= counts.least && n <= counts.most; })) {
      return Error{fmt::format("--workloads {}: say IxOxN, each from {} to {}, such as 1024x128x256", list,
                               counts.least, counts.most)};
    }
    made.push_back(sizes);
    begin = end + 1;
  }
  return made;
}

void print_row(const BenchOptions& options, const char* what, const std::string& size, const Figure& figure) {
  if (options.json) {
    fmt::print(
        "{{\"what\":\"{}\",\"size\":\"{}\",\"tokens_per_second\":{:.2f},\"milliseconds\":{:.4f},"
        "\"percent_of_limit\":{:.2f}}}\n",
        what, size, figure.tokens_per_second, figure.milliseconds, figure.limit_percent);
  } else {
    fmt::print("  {:8}{:>14}{:12.1f} tokens/s{:12.3f} ms{:8.1f} % of the limit\n", what, size, figure.tokens_per_second,
               figure.milliseconds, figure.limit_percent);
  }
  std::fflush(stdout);
}

/// Before the model is there: a GPU's measurement wants memory.
Result<MachineLimits> limits_of(const BenchOptions& options) {
  if (!options.limits.empty()) {
    const std::string_view text = options.limits;
    const size_t comma = std::min(text.find(','), text.size());
    const auto bytes = parse_number(text.substr(0, comma));
    const auto flops = parse_number(text.substr(std::min(comma + 1, text.size())));
    const auto good = [](const Result<double>& rate) { return rate.ok() && *rate > 0 && std::isfinite(*rate); };
    if (good(bytes) && good(flops)) return MachineLimits{*bytes, *flops};
    return Error{fmt::format("--limits {}: say two numbers above 0, such as 4.6e12,7.8e14", text)};
  }
  if (options.instance.device != "cpu") {
    auto gpu = make_device(DeviceKind::cuda, {.batch_invariant = false});
    if (gpu.ok()) return measure_gpu_limits(**gpu);
    if (options.instance.device == "cuda") return std::move(gpu).error();
  }
  ASSIGN_OR_RETURN(const OpenedModel opened, open_model(options.instance));
  const int threads = options.instance.threads > 0 ? options.instance.threads : usable_cores();
  return measure_limits(threads, opened.memory.weights);
}

Status measure_all(Instance& instance, const BenchOptions& options, const std::vector<Workload>& workloads,
                   const MachineLimits& limits) {
  Bench bench(instance, options, limits);
  const auto row = [&](const char* what, const std::string& size, auto&& measured) -> Status {
    const EngineStats before = instance.engine->stats();
    ASSIGN_OR_RETURN(const Figure figure, measured());
    print_row(options, what, size, figure);
    const EngineStats stats = instance.engine->stats();
    if (options.json && stats.steps > before.steps) {
      fmt::print("{{\"what\":\"host\",\"size\":\"{}\",\"us_per_step\":{:.2f}}}\n", size,
                 static_cast<double>(stats.host_us - before.host_us) / static_cast<double>(stats.steps - before.steps));
    }
    return {};
  };
  for (const int tokens : options.prompts) {
    if (tokens >= instance.memory.max_model_len) continue;
    TRY(row("prefill", std::to_string(tokens), [&] { return bench.prefill(tokens); }));
  }
  for (const int batch : options.batches) {
    if (batch > instance.options.max_num_seqs) continue;
    TRY(row("decode", std::to_string(batch), [&] { return bench.decode(batch); }));
  }
  for (const auto& sizes : workloads) {
    TRY(row("run", fmt::format("{}x{}x{}", sizes[0], sizes[1], sizes[2]), [&] { return bench.workload(sizes); }));
  }
  for (const int count : options.mixed) {
    ASSIGN_OR_RETURN(const auto figures, bench.mixed(count));
    print_row(options, "gap p50", std::to_string(count), figures[0]);
    print_row(options, "gap p99", std::to_string(count), figures[1]);
  }
  for (const int tokens : options.hits) {
    TRY(row("hit", std::to_string(tokens), [&] { return bench.hit(tokens); }));
  }
  return {};
}

void print_operation(const BenchOptions& options, const std::string& size, const OperationTime& operation,
                     double all_seconds) {
  const double share = 100 * operation.seconds / std::max(all_seconds, 1e-9);
  const double of_limit = 100 * operation.least_seconds / std::max(operation.seconds, 1e-9);
  if (options.json) {
    fmt::print(
        "{{\"what\":\"operation\",\"size\":\"{}\",\"operation\":\"{}\",\"calls\":{},\"milliseconds\":{:.4f},"
        "\"share_percent\":{:.2f},\"bytes\":{:.0f},\"flops\":{:.0f},\"percent_of_limit\":{:.2f}}}\n",
        size, operation.name, operation.calls, operation.seconds * 1e3, share, operation.bytes, operation.flops,
        of_limit);
  } else {
    fmt::print("    {:28}{:7}{:11.3f}{:8.1f}{:12.4f}{:12.4f}{:8.1f}\n", operation.name, operation.calls,
               operation.seconds * 1e3, share, operation.bytes * 1e-9, operation.flops * 1e-12, of_limit);
  }
}

/// What the step takes is that of a served one; its operations are timed alone in another, and take longer together.
void print_profile(const BenchOptions& options, const StepSize& size, const StepProfile& profile) {
  const StepOperations& all = profile.operations;
  const double of_limit = 100 * all.least_seconds / profile.seconds;
  if (options.json) {
    fmt::print(
        "{{\"what\":\"step\",\"size\":\"{}\",\"tokens\":{},\"milliseconds\":{:.4f},\"operations_milliseconds\":{:.4f},"
        "\"between_milliseconds\":{:.4f},\"percent_of_limit\":{:.2f}}}\n",
        size.text(), size.tokens(), profile.seconds * 1e3, all.seconds * 1e3, all.between_seconds * 1e3, of_limit);
  } else {
    fmt::print(
        "  step {}: {} tokens in {:.3f} ms, {:.1f} % of the limit; one by one its operations take {:.3f} ms, with "
        "{:.3f} "
        "ms between them\n    {:28}{:>7}{:>11}{:>8}{:>12}{:>12}{:>8}\n",
        size.text(), size.tokens(), profile.seconds * 1e3, of_limit, all.seconds * 1e3, all.between_seconds * 1e3,
        "operation", "calls", "ms", "%", "GB", "TFLOP", "limit %");
  }
  for (const OperationTime& operation : all.operations) print_operation(options, size.text(), operation, all.seconds);
  std::fflush(stdout);
}

void print_limits(const BenchOptions& options, const Instance& instance, const MachineLimits& limits,
                  double ready_seconds) {
  if (options.json) {
    fmt::print(
        "{{\"what\":\"limits\",\"read_bytes_per_second\":{:.4g},\"flops_per_second\":{:.4g},\"ready_seconds\":{:.3f}}}"
        "\n",
        limits.read_bytes_per_second, limits.flops_per_second, ready_seconds);
  } else {
    fmt::print("{} on {}\nready after {:.2f} s; limits now: {:.1f} GB/s read, {:.0f} GFLOP/s\n",
               instance.checkpoint->path(), instance.device->description(), ready_seconds,
               limits.read_bytes_per_second * 1e-9, limits.flops_per_second * 1e-9);
  }
}

/// Room for the steps where the user left it open.
Status profile(BenchOptions& options, const MachineLimits& limits) {
  ASSIGN_OR_RETURN(const auto steps, parse_steps(options.profile));
  ASSIGN_OR_RETURN(const OpenedModel opened, open_model(options.instance));
  int sequences = opened.options.max_num_seqs;
  int tokens = opened.options.max_num_batched_tokens;
  for (const StepSize& step : steps) {
    sequences = std::max(sequences, step.sequences());
    tokens = std::max(tokens, step.tokens());
  }
  if (options.instance.max_num_seqs < 0) options.instance.max_num_seqs = sequences;
  if (options.instance.max_num_batched_tokens < 0)
    options.instance.max_num_batched_tokens = std::max(tokens, sequences);
  const int64_t start = now_us();
  ASSIGN_OR_RETURN(const auto instance, load_instance(options.instance));
  print_limits(options, *instance, limits, seconds_since(start));
  ASSIGN_OR_RETURN(const auto profiles, profile_steps(*instance, steps, limits, 1.0));
  for (size_t i = 0; i < steps.size(); ++i) print_profile(options, steps[i], profiles[i]);
  return {};
}

Status sweep_loads(Instance& instance, const BenchOptions& options, const Sweep& sweep) {
  Streams streams(instance);
  std::vector<SweepPoint> points;
  if (!options.json) fmt::print("{}", sweep_head(sweep));
  for (const int concurrency : sweep.concurrencies) {
    const int requests = Sweep::requests_at(concurrency);
    ASSIGN_OR_RETURN(LoadReport report, streams.load(concurrency, requests, options.context, options.output_tokens));
    points.push_back({concurrency, std::move(report)});
    fmt::print("{}", options.json ? point_json(sweep, points.back()).dump() + "\n" : point_line(sweep, points.back()));
    std::fflush(stdout);
  }
  if (!options.json) fmt::print("{}", knee_line(sweep, points));
  return {};
}

Status measure(BenchOptions& options) {
  if (options.hits.empty()) options.instance.prefix_caching = false;
  ASSIGN_OR_RETURN(const auto workloads, parse_workloads(options.workloads));
  std::optional<Sweep> sweep;
  if (!options.sweep.concurrencies.empty()) {
    ASSIGN_OR_RETURN(sweep, Sweep::parse(options.sweep));
  }
  ASSIGN_OR_RETURN(const MachineLimits limits, limits_of(options));
  if (!options.profile.empty()) return profile(options, limits);
  const int64_t start = now_us();
  ASSIGN_OR_RETURN(const auto instance, make_instance(options.instance));
  print_limits(options, *instance, limits, seconds_since(start));
  return sweep ? sweep_loads(*instance, options, *sweep) : measure_all(*instance, options, workloads, limits);
}

}  // namespace

int bench_command(std::span<char* const> arguments) {
  if (names_a_server(arguments)) return bench_url_command(arguments);
  BenchOptions options;
  Flags flags("quern bench [MODEL] [flags]    or    quern bench --url URL [flags]; see quern bench --url X --help",
              "quern bench model.gguf --prompt-lengths 512 --batch-sizes 1,8");
  flags.positional("MODEL", &options.instance.model);
  flags.add("--prompt-lengths", "A,B,...", "tokens of prefill", &options.prompts, counts);
  flags.add("--batch-sizes", "A,B,...", "streams that decode together", &options.batches, counts);
  flags.add("--context", "N", "tokens of the prompts of streams that decode (16)", &options.context, counts);
  flags.add("--output-tokens", "N", "tokens of each stream", &options.output_tokens, between(2, counts.most));
  flags.add("--workloads", "IxOxN,...",
            "N requests at once of I tokens each, O tokens from each: tokens/s of the whole", &options.workloads);
  flags.add("--mixed", "A,B,...", "gaps between tokens of A streams while a long prompt comes every second",
            &options.mixed, counts);
  flags.add("--limits", "BYTES,FLOPS", "a second's limits, from an earlier run, instead of measuring them",
            &options.limits);
  flags.add("--prefix-hits", "A,B,...", "time to the first token of prompts that are cached", &options.hits, counts);
  flags.add("--repeats", "N", "of which the best counts", &options.repeats, between(1, 1000));
  flags.add("--profile", "STEPS",
            "instead the operations of steps: 256@1024,8x1024,256@1024+8x1024 are 256 rows behind 1,024 tokens, 8 "
            "prompts of 1,024 tokens, and both together",
            &options.profile);
  flags.add("--sweep", "A,B,...", "instead tokens/s and waits with so many streams at once, and where it is best run",
            &options.sweep.concurrencies);
  flags.add("--goodput", "ttft:MS,tpot:MS", "of a sweep: what 99 of 100 streams must keep", &options.sweep.limits);
  flags.add("--price-per-hour", "P", "of the machine: a sweep then says what a million tokens cost",
            &options.sweep.price_per_hour, between(0, 1e9));
  flags.add("--json", "one JSON object per figure", &options.json);
  add_instance_flags(flags, options.instance);
  const Status parsed = flags.parse(arguments);
  if (!parsed.ok()) return fail(parsed.error().message);
  if (flags.help_wanted()) {
    fmt::print("{}", flags.help());
    return 0;
  }
  const Status done = measure(options);
  return done.ok() ? 0 : fail(done.error().message);
}

}  // namespace quern
