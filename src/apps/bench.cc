// quern bench: a model's speed beside the limits of this machine, both measured in the same run.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fmt/format.h>
#include <optional>
#include <string>

#include "apps/bench_url.h"
#include "apps/commands.h"
#include "apps/instance.h"
#include "apps/load/sweep.h"
#include "apps/measure/machine_facts.h"
#include "apps/measure/machine_limits.h"
#include "apps/measure/model_work.h"
#include "apps/measure/repeat_table.h"
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
  RepeatOptions table;
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
  double bandwidth_percent = 0.0, flops_percent = 0.0;
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
    return figure_of(tokens, best, {work_.prefill(tokens)});
  }

  /// `batch` streams that run together; the time of a step when all of them decode.
  Result<Figure> decode(int batch) {
    double best = 1e9;
    for (int i = 0; i < options_.repeats; ++i) {
      ASSIGN_OR_RETURN(const StreamTimes times, streams_.run(batch, options_.context, options_.output_tokens));
      if (times.step_seconds > 0) best = std::min(best, times.step_seconds);
    }
    const double context = options_.context + options_.output_tokens / 2.0;
    return figure_of(batch, best, {work_.decode(batch, context)});
  }

  /// INPUTxOUTPUTxCOUNT, all at once: output tokens of the whole run.
  Result<Figure> workload(const Workload& sizes) {
    const auto [input, output, count] = sizes;
    StreamTimes best{.seconds = 1e9};
    for (int i = 0; i < options_.repeats; ++i) {
      ASSIGN_OR_RETURN(const StreamTimes times, streams_.run(count, input, output));
      if (times.seconds < best.seconds) best = times;
    }
    return figure_of(static_cast<double>(best.output_tokens), best.seconds,
                     {work_.decode(count, input + output / 2.0).times(output), work_.prefill(input).times(count)});
  }

  /// p50 and p99 of the gaps between the tokens of so many streams while a prompt of 8,192 tokens comes every second.
  Result<std::array<Figure, 2>> mixed(int count) {
    constexpr int long_prompt = 8192;
    ASSIGN_OR_RETURN(const GapTimes times, streams_.mixed(count, long_prompt, 4));
    const StepWork work = work_.decode(count, 1024);
    return std::array{figure_of(count, times.p50_seconds, {work}), figure_of(count, times.p99_seconds, {work})};
  }

  Result<Figure> hit(int tokens) {
    double best = 1e9;
    for (int i = 0; i < options_.repeats; ++i) {
      ASSIGN_OR_RETURN(const double seconds, streams_.hit(tokens));
      best = std::min(best, seconds);
    }
    return figure_of(1, best, {work_.decode(1, tokens)});
  }

 private:
  Figure figure_of(double tokens, double seconds, std::initializer_list<StepWork> parts) const {
    Figure figure{tokens / seconds, seconds * 1e3};
    for (const StepWork& work : parts) {
      figure.limit_percent += 100 * work.seconds(limits_) / seconds;
      figure.bandwidth_percent += 100 * work.bytes() / limits_.read_bytes_per_second / seconds;
      figure.flops_percent += 100 * work.flops / limits_.flops_per_second / seconds;
    }
    return figure;
  }

  Streams streams_;
  ModelWork work_;
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
        "\"percent_of_limit\":{:.2f},\"percent_of_bandwidth\":{:.2f},\"percent_of_flops\":{:.2f}}}\n",
        what, size, figure.tokens_per_second, figure.milliseconds, figure.limit_percent, figure.bandwidth_percent,
        figure.flops_percent);
  } else {
    fmt::print(
        "  {:8}{:>14}{:12.1f} tokens/s{:12.3f} ms{:7.1f} % of the limit:{:6.1f} % of the reads,{:6.1f} % of FLOP/s\n",
        what, size, figure.tokens_per_second, figure.milliseconds, figure.limit_percent, figure.bandwidth_percent,
        figure.flops_percent);
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
    Json line = Json::Object{{"what", "limits"}, {"size", ""}};
    line.set("read_bytes_per_second", limits.read_bytes_per_second);
    line.set("flops_per_second", limits.flops_per_second);
    line.set("ready_seconds", ready_seconds);
    line.set("device", instance.device->description());
    line.set("machine", machine_facts());
    fmt::print("{}\n", line.dump());
  } else {
    fmt::print("{} on {}\nready after {:.2f} s; limits now: {:.1f} GB/s read, {:.0f} GFLOP/s\n",
               instance.checkpoint->path(), instance.device->description(), ready_seconds,
               limits.read_bytes_per_second * 1e-9, limits.flops_per_second * 1e-9);
  }
}

/// What the device says of itself after the run.
void print_readings(const BenchOptions& options, Device& device) {
  for (const DeviceReading& reading : device.readings()) {
    if (options.json) {
      fmt::print("{{\"what\":\"reading\",\"size\":\"{}\",\"value\":{}}}\n", reading.name, reading.value);
    } else {
      fmt::print("  {:40}{:16.2f}\n", reading.name, reading.value);
    }
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

RepeatFacts facts_of(const Instance& instance) {
  const Json machine = machine_facts();
  const bool gpu = instance.device->kind() != DeviceKind::cpu;
  RepeatFacts facts;
  facts.commit = machine.string("git_hash").value_or("");
  facts.cpu = machine.string("cpu").value_or("");
  facts.gpu = gpu ? instance.device->description() : "";
  facts.backend = gpu ? "CUDA" : "CPU";
  facts.file = instance.checkpoint->path();
  facts.type = instance.name;
  facts.kv_type = instance.options.kv_cache_dtype;
  facts.bytes = instance.memory.weights;
  facts.parameters = static_cast<int64_t>(ModelWork(instance).parameters());
  facts.threads = instance.options.threads > 0 ? instance.options.threads : usable_cores();
  facts.batch_tokens = instance.options.max_num_batched_tokens;
  return facts;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

/// One run that does not count, then the repetitions; a generation begins after a token of its prompt.
Status measure_table(Instance& instance, const BenchOptions& options, std::vector<RepeatTest> tests) {
  Streams streams(instance);
  for (RepeatTest& test : tests) {
    test.time = utc_now();
    const int output = test.prompt > 0 ? test.generated + 1 : test.generated;
    for (int i = 0; i <= options.table.repetitions; ++i) {
      ASSIGN_OR_RETURN(const StreamTimes times, streams.run(1, std::max(1, test.prompt), output));
      if (i > 0) test.seconds.push_back(times.seconds);
    }
  }
  fmt::print("{}", table_of(options.table.output, facts_of(instance), tests));
  return {};
}

Status measure(BenchOptions& options) {
  if (!options.hits.empty()) options.instance.prefix_caching = true;
  ASSIGN_OR_RETURN(const auto workloads, parse_workloads(options.workloads));
  std::optional<Sweep> sweep;
  if (!options.sweep.concurrencies.empty()) {
    ASSIGN_OR_RETURN(sweep, Sweep::parse(options.sweep));
  }
  if (options.table.asked()) {
    ASSIGN_OR_RETURN(std::vector<RepeatTest> tests, parse_tests(options.table));
    ASSIGN_OR_RETURN(const auto instance, make_instance(options.instance));
    return measure_table(*instance, options, std::move(tests));
  }
  ASSIGN_OR_RETURN(const MachineLimits limits, limits_of(options));
  if (!options.profile.empty()) return profile(options, limits);
  const int64_t start = now_us();
  ASSIGN_OR_RETURN(const auto instance, make_instance(options.instance));
  print_limits(options, *instance, limits, seconds_since(start));
  TRY(sweep ? sweep_loads(*instance, options, *sweep) : measure_all(*instance, options, workloads, limits));
  print_readings(options, *instance->device);
  return {};
}

void add_table_flags(Flags& flags, RepeatOptions& table) {
  flags.add("--n-prompt", "A,B,...", "instead the table of llama-bench, -p: tokens of prompts, pp512", &table.prompts,
            between(0, counts.most));
  flags.add("--n-gen", "A,B,...", "the same, -n: generated tokens, tg128", &table.generations, between(0, counts.most));
  flags.add("--pg", "P,G", "the same, -pg: a prompt and then a generation", &table.pairs);
  flags.add("--repetitions", "N", "the same, -r: of each test (5)", &table.repetitions, between(1, 1000));
  flags.add("--output", "FORMAT", "the same, -o: md, csv, json or jsonl", &table.output);
  flags.alias("-p", "--n-prompt");
  flags.alias("-n", "--n-gen");
  flags.alias("-pg", "--pg");
  flags.alias("-r", "--repetitions");
  flags.alias("-o", "--output");
}

}  // namespace

int bench_command(std::span<char* const> arguments) {
  if (names_a_server(arguments)) return bench_url_command(arguments);
  BenchOptions options;
  options.instance.prefix_caching = false;  // repeats have the same prompts
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
  add_table_flags(flags, options.table);
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
