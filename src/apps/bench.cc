// quern bench: a model's speed beside the limits of this machine, both measured in the same run.
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <random>
#include <string>

#include "apps/bench_url.h"
#include "apps/commands.h"
#include "apps/instance.h"
#include "apps/machine_limits.h"
#include "apps/pending.h"
#include "base/clock.h"
#include "base/thread_pool.h"

namespace quern {
namespace {

struct BenchOptions {
  InstanceOptions instance;
  std::string prompts = "128,512,2048";
  std::string batches = "1,2,4,8,16";
  int output_tokens = 64;
  int repeats = 3;
  bool operations = false;
  bool json = false;
};

/// Time per kind of kernel.
class OperationTimes final : public Trace {
 public:
  void begin(const char*) override { start_us_ = now_us(); }
  void end(const char* kernel) override {
    auto& [count, us] = times_[kernel];
    ++count;
    us += now_us() - start_us_;
  }
  void clear() { times_.clear(); }
  void print() const {
    int64_t all = 0;
    for (const auto& [name, entry] : times_) all += entry.second;
    for (const auto& [name, entry] : times_) {
      fmt::print("    {:16}{:8} calls{:10.1f} ms{:7.1f} %\n", name, entry.first,
                 static_cast<double>(entry.second) * 1e-3,
                 100.0 * static_cast<double>(entry.second) / static_cast<double>(std::max<int64_t>(all, 1)));
    }
  }

 private:
  int64_t start_us_ = 0;
  std::map<std::string, std::pair<int64_t, int64_t>> times_;
};

struct Figure {
  double tokens_per_second = 0.0;
  double limit_percent = 0.0;  // of the read bandwidth (decode) or of the arithmetic (prefill)
};

/// Weights that a token meets in matrix products: two operations each.
double multiplied_weights(const DecoderSpec& spec) {
  double count = static_cast<double>(spec.vocab) * spec.dim;  // once per sampled token; counted for each in decode
  for (const LayerSpec& layer : spec.layers) {
    const auto& attention = std::get<AttentionSpec>(layer.mixer);
    count += static_cast<double>(spec.dim) * attention.head_dim * (2 * attention.heads + 2 * attention.kv_heads);
    if (const auto* dense = std::get_if<FfnSpec>(&layer.ffn)) count += 3.0 * spec.dim * dense->hidden;
    if (const auto* moe = std::get_if<MoeSpec>(&layer.ffn)) {
      count += static_cast<double>(spec.dim) * (3.0 * moe->hidden * moe->used + moe->experts);
    }
  }
  return count;
}

class Bench {
 public:
  Bench(Instance& instance, const BenchOptions& options, const MachineLimits& limits)
      : instance_(instance), options_(options), limits_(limits) {}

  Result<Figure> prefill(int tokens) {
    double best = 0.0;
    for (int i = 0; i < options_.repeats; ++i) {
      ASSIGN_OR_RETURN(const auto pending, Pending::submit(*instance_.engine, request(tokens, 1)));
      const Reply answer = pending->wait();
      if (answer.reason == FinishReason::error) return Error{answer.error};
      best = std::max(best, tokens / (static_cast<double>(answer.times.first_token_us) * 1e-6));
    }
    const double body =
        multiplied_weights(instance_.spec()) - static_cast<double>(instance_.spec().vocab) * instance_.spec().dim;
    return Figure{best, 100 * best * 2 * body / limits_.flops_per_second};
  }

  /// `batch` streams that run together; the rate is of the time when all of them decode.
  Result<Figure> decode(int batch) {
    double best = 0.0;
    for (int i = 0; i < options_.repeats; ++i) {
      ASSIGN_OR_RETURN(const double rate, decode_once(batch));
      best = std::max(best, rate);
    }
    const double bytes_per_step = static_cast<double>(instance_.memory.weights);
    return Figure{best, 100 * best / batch * bytes_per_step / limits_.read_bytes_per_second};
  }

 private:
  Request request(int prompt, int output) {
    Request made;
    const int tokens = instance_.tokenizer ? instance_.tokenizer->size() : instance_.spec().vocab;
    std::uniform_int_distribution<int32_t> any(0, std::min(instance_.spec().vocab, tokens) - 1);
    for (int i = 0; i < prompt; ++i) made.prompt.push_back(any(random_));
    made.max_tokens = output;
    made.sampling.temperature = 0.0F;
    return made;
  }

  Result<double> decode_once(int batch) {
    std::vector<std::shared_ptr<Pending>> streams;
    for (int i = 0; i < batch; ++i) {
      ASSIGN_OR_RETURN(auto pending, Pending::submit(*instance_.engine, request(16, options_.output_tokens)));
      streams.push_back(std::move(pending));
    }
    double total = 0.0;
    double span = 0.0;
    for (const auto& stream : streams) {
      const Reply answer = stream->wait();
      if (answer.reason == FinishReason::error) return Error{answer.error};
      total += answer.times.output_tokens - 1;
      span = std::max(span, static_cast<double>(answer.times.total_us - answer.times.first_token_us) * 1e-6);
    }
    return total / span;
  }

  Instance& instance_;
  const BenchOptions& options_;
  const MachineLimits& limits_;
  std::mt19937 random_{1};
};

std::vector<int> numbers(const std::string& list) {
  std::vector<int> made;
  size_t begin = 0;
  while (begin < list.size()) {
    size_t end = list.find(',', begin);
    if (end == std::string::npos) end = list.size();
    const auto value = parse_integer(std::string_view(list).substr(begin, end - begin));
    if (value.ok() && *value > 0 && *value < 1 << 20) made.push_back(static_cast<int>(*value));
    begin = end + 1;
  }
  return made;
}

void print_row(const BenchOptions& options, const char* what, int size, const Figure& figure, const char* limit) {
  if (options.json) {
    fmt::print("{{\"what\":\"{}\",\"size\":{},\"tokens_per_second\":{:.2f},\"percent_of_{}\":{:.2f}}}\n", what, size,
               figure.tokens_per_second, limit, figure.limit_percent);
  } else {
    fmt::print("  {:8}{:6}{:12.1f} tokens/s{:8.1f} % of {}\n", what, size, figure.tokens_per_second,
               figure.limit_percent, limit);
  }
}

int measure(BenchOptions& options) {
  OperationTimes operations;
  if (options.operations) options.instance.trace = &operations;
  options.instance.prefix_caching = false;
  const int threads = options.instance.threads > 0 ? options.instance.threads : usable_cores();
  auto instance = make_instance(options.instance);
  if (!instance.ok()) return fail(instance.error().message);
  const MachineLimits limits = measure_limits(threads, (*instance)->memory.weights);
  if (!options.json) {
    fmt::print("{} on {}\nlimits now: {:.1f} GB/s read, {:.0f} GFLOP/s float32\n", (*instance)->checkpoint->path(),
               (*instance)->device->description(), limits.read_bytes_per_second * 1e-9, limits.flops_per_second * 1e-9);
  }
  Bench bench(**instance, options, limits);
  const auto run = [&](const char* what, const std::vector<int>& sizes, auto one, const char* limit) -> Status {
    for (const int size : sizes) {
      operations.clear();
      ASSIGN_OR_RETURN(const Figure figure, one(size));
      print_row(options, what, size, figure, limit);
      if (options.operations) operations.print();
    }
    return {};
  };
  std::vector<int> prompts = numbers(options.prompts);
  std::erase_if(prompts, [&](int tokens) { return tokens >= (*instance)->memory.max_model_len; });
  std::vector<int> batches = numbers(options.batches);
  std::erase_if(batches, [&](int batch) { return batch > (*instance)->options.max_num_seqs; });
  Status done = run("prefill", prompts, [&](int size) { return bench.prefill(size); }, "flops");
  if (done.ok()) done = run("decode", batches, [&](int size) { return bench.decode(size); }, "bandwidth");
  return done.ok() ? 0 : fail(done.error().message);
}

}  // namespace

int bench_command(std::span<char* const> arguments) {
  if (names_a_server(arguments)) return bench_url_command(arguments);
  BenchOptions options;
  Flags flags("quern bench [MODEL] [flags]    or    quern bench --url URL [flags]; see quern bench --url X --help",
              "quern bench model.gguf --prompt-lengths 512 --batch-sizes 1,8");
  flags.positional("MODEL", &options.instance.model);
  flags.add("--prompt-lengths", "A,B,...", "tokens of prefill", &options.prompts);
  flags.add("--batch-sizes", "A,B,...", "streams that decode together", &options.batches);
  flags.add("--output-tokens", "N", "tokens of each stream", &options.output_tokens);
  flags.add("--repeats", "N", "of which the best counts", &options.repeats);
  flags.add("--operations", "also the time of each kind of operation", &options.operations);
  flags.add("--json", "one JSON object per figure", &options.json);
  add_instance_flags(flags, options.instance);
  const Status parsed = flags.parse(arguments);
  if (!parsed.ok()) return fail(parsed.error().message);
  if (flags.help_wanted()) {
    fmt::print("{}", flags.help());
    return 0;
  }
  return measure(options);
}

}  // namespace quern
