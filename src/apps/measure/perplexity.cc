// quern perplexity: how well a model predicts a text, and how its predictions differ from those of a saved run.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

#include "apps/commands.h"
#include "apps/instance.h"
#include "apps/loader_text.h"
#include "apps/measure/base_run.h"
#include "apps/measure/windows.h"
#include "base/channel.h"
#include "base/clock.h"

namespace quern {
namespace {

struct PerplexityOptions {
  InstanceOptions instance;
  std::string file;
  std::string save_base;
  std::string base;
  WindowSizes sizes;
  int64_t windows = 0;
  bool json = false;
};

/// What is scored.
struct Text {
  std::vector<int32_t> tokens;
  std::vector<Window> windows;
  WindowSizes sizes;
  int32_t bos = -1;  // begins every window; -1: nothing does

  int64_t scored() const { return windows.back().first_scored + windows.back().scored(); }
  std::vector<int32_t> tokens_of(const Window& window) const {
    std::vector<int32_t> part(tokens.begin() + window.begin, tokens.begin() + window.end);
    if (bos >= 0) part.front() = bos;
    return part;
  }
};

/// Windows that begin in the middle of a text begin as texts do, where the tokenizer has a token for it.
Result<Text> read_text(const PerplexityOptions& options, const Tokenizer& tokenizer) {
  Text text;
  text.sizes = options.sizes;
  ASSIGN_OR_RETURN(const std::string content, read_file(options.file));
  ASSIGN_OR_RETURN(text.tokens, tokenizer.encode(content, {}));
  ASSIGN_OR_RETURN(const std::vector<int32_t> empty, tokenizer.encode("", {}));
  if (text.sizes.stride == 0 && !empty.empty() && tokenizer.bos() == empty.front()) text.bos = empty.front();
  ASSIGN_OR_RETURN(text.windows, cut_windows(static_cast<int64_t>(text.tokens.size()), text.sizes, options.windows));
  text.tokens.resize(static_cast<size_t>(text.windows.back().end));
  return text;
}

/// The text of a saved run; a file, where one is named, must be the same text.
Result<Text> text_of(const BaseRun& base, const PerplexityOptions& options, const Tokenizer& tokenizer) {
  Text text{base.tokens(), {}, base.head().sizes, base.head().bos};
  ASSIGN_OR_RETURN(text.windows, cut_windows(static_cast<int64_t>(text.tokens.size()), text.sizes, 0));
  if (text.scored() != base.head().scored) return Error{options.base + ": its windows are not those of its head"};
  if (options.file.empty()) return text;
  ASSIGN_OR_RETURN(const std::string content, read_file(options.file));
  ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, tokenizer.encode(content, {}));
  const auto [mine, saved] = std::ranges::mismatch(tokens, text.tokens);
  if (saved == text.tokens.end()) return text;
  return Error{fmt::format("{}: token {} of {} is another one; the base run is of another text or tokenizer",
                           options.base, saved - text.tokens.begin(), options.file)};
}

/// Differences from a saved run, by scored token.
struct Divergence {
  std::vector<float> kl;
  std::vector<float> base_surprise;
  int64_t same_best = 0;
};

/// Where the logits of scored tokens go. Thread: executor.
class LogitsUse {
 public:
  void save_to(BaseWriter* writer) { writer_ = writer; }
  void compare_with(const BaseRun* base, int64_t scored) {
    base_ = base;
    divergence.kl.resize(static_cast<size_t>(scored));
    divergence.base_surprise.resize(static_cast<size_t>(scored));
  }
  void see(const ScoredLogits& seen, const Window& window) {
    const int64_t first = window.first_scored + seen.position + 1 - window.score_from;
    for (size_t i = 0; i < seen.followers.size(); ++i) {
      if (seen.scores[i].status != SampleStatus::ok) continue;  // the window fails
      const std::span<const float> logits(seen.logits + i * static_cast<size_t>(seen.vocab),
                                          static_cast<size_t>(seen.vocab));
      const int64_t ordinal = first + static_cast<int64_t>(i);
      if (writer_ != nullptr) writer_->write(ordinal, logits);
      if (base_ == nullptr) continue;
      const Difference difference =
          base_->compare(ordinal, logits, seen.followers[i], static_cast<double>(seen.scores[i].logprob));
      divergence.kl[static_cast<size_t>(ordinal)] = static_cast<float>(difference.kl);
      divergence.base_surprise[static_cast<size_t>(ordinal)] = static_cast<float>(-difference.base_logprob);
      divergence.same_best += difference.same_best ? 1 : 0;
    }
  }

  Divergence divergence;

 private:
  BaseWriter* writer_ = nullptr;
  const BaseRun* base_ = nullptr;
};

/// A line that is written over on a terminal, and comes once a second elsewhere.
class ScoreLine {
 public:
  explicit ScoreLine(bool quiet) : quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0), start_us_(now_us()) {}
  ~ScoreLine() {
    if (shown_us_ > 0 && terminal_) std::fprintf(stderr, "\r\033[K");
  }
  ScoreLine(const ScoreLine&) = delete;
  ScoreLine& operator=(const ScoreLine&) = delete;

  void update(size_t done, size_t windows, int64_t tokens, const Surprise& surprise) {
    const int64_t now = now_us();
    const int64_t pause = terminal_ ? 50'000 : 1'000'000;
    if (quiet_ || now - std::max(start_us_, shown_us_) < pause) return;
    shown_us_ = now;
    const double seconds = seconds_since(start_us_);
    const double left = seconds * static_cast<double>(windows - done) / static_cast<double>(done);
    const std::string line =
        fmt::format("[{}/{}] perplexity {:.4f} +- {:.4f}, {:.0f} tokens/s, {:.0f} s left", done, windows,
                    surprise.perplexity(), surprise.perplexity_error(), static_cast<double>(tokens) / seconds, left);
    std::fprintf(stderr, terminal_ ? "\r\033[K%s" : "%s\n", line.c_str());
    std::fflush(stderr);
  }

 private:
  const bool quiet_;
  const bool terminal_;
  const int64_t start_us_;
  int64_t shown_us_ = 0;
};

struct Score {
  Surprise surprise;
  double seconds = 0.0;
  int64_t tokens = 0;  // computed
};

/// Asks the engine for the windows, some at a time.
class WindowScorer {
 public:
  WindowScorer(Engine& engine, const Text& text, int at_once) : engine_(engine), text_(text), at_once_(at_once) {}

  Result<Score> run(bool quiet) {
    const int64_t start = now_us();
    ScoreLine line(quiet);
    Score score;
    size_t submitted = 0;
    for (size_t next = 0; next < text_.windows.size(); ++next) {
      while (submitted < text_.windows.size() && submitted < next + static_cast<size_t>(at_once_)) {
        TRY(submit(submitted++));
      }
      ASSIGN_OR_RETURN(const std::vector<TokenLogprobs> scores, wait_for(next));
      for (const TokenLogprobs& each : scores) score.surprise.add(-static_cast<double>(each.chosen));
      score.tokens += text_.windows[next].end - text_.windows[next].begin;
      line.update(next + 1, text_.windows.size(), score.tokens, score.surprise);
    }
    score.seconds = seconds_since(start);
    return score;
  }

 private:
  class Sink final : public EventSink {
   public:
    void deliver(TokenEvent event) override { events.try_send(std::move(event)); }
    Channel<TokenEvent> events;
  };

  Status submit(size_t index) {
    const Window& window = text_.windows[index];
    Request request;
    request.id = RequestId{index};
    request.prompt = text_.tokens_of(window);
    request.max_tokens = 0;
    request.score_from = window.score_from;
    request.sampling.prompt_logprobs = 0;
    request.sink = sinks_.emplace_back(std::make_shared<Sink>());
    if (engine_.submit(std::move(request)) == SubmitResult::accepted) return {};
    return Error{fmt::format("a window of {} tokens does not fit; raise --kv-cache-memory-bytes or lower --context",
                             window.end - window.begin)};
  }

  Result<std::vector<TokenLogprobs>> wait_for(size_t index) {
    std::optional<TokenEvent> event;
    do {
      event = sinks_[index]->events.receive();
    } while (event && !event->finish);
    sinks_[index].reset();
    if (event && event->error.empty()) return std::move(event->prompt_logprobs);
    return Error{event ? event->error : "the engine stopped"};
  }

  Engine& engine_;
  const Text& text_;
  const int at_once_;
  std::vector<std::shared_ptr<Sink>> sinks_;
};

double mean_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value);
  return sum / static_cast<double>(values.size());
}

Json report(const Text& text, const Score& score) {
  Json json;
  json.set("perplexity", score.surprise.perplexity())
      .set("perplexity_error", score.surprise.perplexity_error())
      .set("nats_per_token", score.surprise.mean())
      .set("scored_tokens", score.surprise.count())
      .set("windows", static_cast<int64_t>(text.windows.size()))
      .set("context", text.sizes.context)
      .set("stride", text.sizes.stride)
      .set("seconds", score.seconds)
      .set("tokens_per_second", static_cast<double>(score.tokens) / score.seconds);
  return json;
}

constexpr std::pair<const char*, double> percentiles[] = {{"median", 0.5}, {"p90", 0.9},     {"p95", 0.95},
                                                          {"p99", 0.99},   {"p99.9", 0.999}, {"max", 1.0}};

Json report(Divergence divergence) {
  std::vector<float>& kl = divergence.kl;
  const auto count = static_cast<double>(kl.size());
  Surprise spread;
  for (const float value : kl) spread.add(static_cast<double>(value));
  std::ranges::sort(kl);
  Json json;
  json.set("mean", spread.mean()).set("mean_error", spread.error());
  for (const auto& [name, part] : percentiles) {
    json.set(name, static_cast<double>(kl[static_cast<size_t>(part * (count - 1))]));
  }
  const double same = static_cast<double>(divergence.same_best) / count;
  Json all;
  return all.set("base_perplexity", std::exp(mean_of(divergence.base_surprise)))
      .set("kl_divergence", std::move(json))
      .set("same_top_token", same)
      .set("same_top_token_error", std::sqrt(same * (1 - same) / std::max(1.0, count - 1)));
}

void print(const Json& score, const Json* divergence) {
  const auto number = [](const Json& json, const char* key) { return json.number(key).value_or(0); };
  fmt::print("perplexity {:.4f} +- {:.4f} ({} tokens scored in {} windows of {}), {:.0f} tokens/s\n",
             number(score, "perplexity"), number(score, "perplexity_error"), number(score, "scored_tokens"),
             number(score, "windows"), number(score, "context"), number(score, "tokens_per_second"));
  if (divergence == nullptr) return;
  const Json& kl = *divergence->find("kl_divergence");
  fmt::print("base perplexity {:.4f}\nKL divergence from the base, nats: mean {:.6f} +- {:.6f}",
             number(*divergence, "base_perplexity"), number(kl, "mean"), number(kl, "mean_error"));
  for (const auto& [name, part] : percentiles) fmt::print(", {} {:.6f}", name, number(kl, name));
  fmt::print("\nsame top token: {:.3f} +- {:.3f} %\n", 100 * number(*divergence, "same_top_token"),
             100 * number(*divergence, "same_top_token_error"));
}

/// What no flag says is chosen for windows: some of them together in a step, and pages for those.
Status choose(InstanceOptions& options, int32_t context) {
  options.prefix_caching = false;
  options.scored_tokens = 256;  // a product of many tokens costs less each
  if (options.max_model_len == "auto") options.max_model_len = std::to_string(context);
  if (options.max_num_seqs < 0) options.max_num_seqs = std::clamp(8192 / context, 1, 62) + 2;
  if (options.kv_cache_memory_bytes != 0) return {};
  ASSIGN_OR_RETURN(const OpenedModel opened, open_model(options));
  const auto groups = static_cast<int64_t>(kv_layout(opened.plan->spec, 2).groups.size());
  const int64_t pages = options.max_num_seqs * (int64_t{context} / kv_layout(opened.plan->spec, 2).page_tokens + 2);
  options.kv_cache_memory_bytes = std::min(opened.memory.kv(), pages * groups * opened.memory.kv_page_bytes);
  return {};
}

Status measure(PerplexityOptions& options) {
  std::optional<BaseRun> base;
  if (!options.base.empty()) {
    ASSIGN_OR_RETURN(base, BaseRun::open(options.base));
    options.sizes = base->head().sizes;
  }
  TRY(cut_windows(INT32_MAX, options.sizes, 1));
  TRY(choose(options.instance, options.sizes.context));
  Text text;
  LogitsUse use;
  if (base || !options.save_base.empty()) {
    options.instance.see_logits = [&](const ScoredLogits& seen) { use.see(seen, text.windows[index(seen.request)]); };
  }
  ASSIGN_OR_RETURN(const auto instance, make_instance(options.instance));
  if (!instance->tokenizer) return Error{"random weights have no tokenizer: give --tokenizer FILE"};
  const int32_t vocab = instance->spec().vocab;
  if (base && base->head().vocab != vocab) {
    return Error{
        fmt::format("{}: its vocabulary has {} tokens, the model's {}", options.base, base->head().vocab, vocab)};
  }
  ASSIGN_OR_RETURN(text,
                   base ? text_of(*base, options, *instance->tokenizer) : read_text(options, *instance->tokenizer));
  const auto outside = [&](int32_t token) { return token < 0 || token >= vocab; };
  if (std::ranges::any_of(text.tokens, outside)) return Error{"a token of the text is not in the model's vocabulary"};
  std::unique_ptr<BaseWriter> writer;
  if (!options.save_base.empty()) {
    const BaseHead head{vocab, text.sizes, text.bos, text.scored()};
    ASSIGN_OR_RETURN(writer, BaseWriter::create(options.save_base, head, text.tokens));
    use.save_to(writer.get());
  }
  if (base) use.compare_with(&*base, text.scored());

  WindowScorer scorer(*instance->engine, text, 2 * instance->options.max_num_seqs);
  ASSIGN_OR_RETURN(const Score score, scorer.run(options.instance.quiet));
  if (writer) TRY(writer->finish());
  Json scores = report(text, score);
  std::optional<Json> divergence;
  if (base) divergence = report(std::move(use.divergence));
  if (!options.json) return print(scores, divergence ? &*divergence : nullptr), Status();
  if (divergence) {
    for (const auto& [name, value] : divergence->members()) scores.set(name, value);
  }
  fmt::print("{}\n", scores.dump());
  return {};
}

}  // namespace

int perplexity_command(std::span<char* const> arguments) {
  PerplexityOptions options;
  Flags flags("quern perplexity MODEL FILE [flags]    or    quern perplexity MODEL --base RUN [flags]",
              "quern perplexity model.gguf text.txt --context 512");
  flags.positional("MODEL", &options.instance.model);
  flags.positional("FILE", &options.file);
  flags.add("--context", "N", "tokens of a window (512)", &options.sizes.context, between(4, INT32_MAX));
  flags.add("--stride", "N", "score what each next N tokens add; 0: the second halves of windows (0)",
            &options.sizes.stride, between(0, INT32_MAX));
  flags.add("--windows", "N", "only the first N windows; 0: all", &options.windows, between(0, INT32_MAX));
  flags.add("--save-base", "RUN", "save the distributions: two bytes a scored token and word of the vocabulary",
            &options.save_base);
  flags.add("--base", "RUN", "compare with a saved run, over its text", &options.base);
  flags.add("--json", "the result as one JSON object", &options.json);
  add_instance_flags(flags, options.instance);
  const Status parsed = flags.parse(arguments);
  if (!parsed.ok()) return fail(parsed.error().message);
  if (flags.help_wanted()) {
    fmt::print("{}", flags.help());
    return 0;
  }
  if (options.file.empty() && options.base.empty()) return fail("name a text: quern perplexity MODEL FILE");
  const Status done = measure(options);
  return done.ok() ? 0 : fail(done.error().message);
}

}  // namespace quern
