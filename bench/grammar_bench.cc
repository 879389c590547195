// What structured output costs: compiling a schema, filling a mask, and rows with a grammar beside rows without one,
// with a real model on this machine:  grammar_bench [MODEL]
#include <algorithm>
#include <array>
#include <chrono>
#include <fmt/format.h>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "apps/instance.h"
#include "base/channel.h"
#include "base/clock.h"
#include "server/constraints.h"

namespace quern {
namespace {

constexpr int rows = 32;
constexpr int answer_tokens = 64;

/// A schema as tools have them; different `name`s make different schemas. About 2 kB.
std::string schema_text(const std::string& name) {
  std::string text = R"({"type":"object","properties":{)";
  for (int i = 0; i < 7; ++i) {
    text += fmt::format(
        R"("{0}_{1}":{{"type":"object","description":"what the {0} number {1} is about, in some words of a person","properties":{{)"
        R"("title":{{"type":"string"}},"count":{{"type":"integer"}},"kind":{{"enum":["{0}","other","none"]}},)"
        R"("tags":{{"type":"array","items":{{"type":"string"}}}}}},"required":["title","kind"]}},)",
        name, i);
  }
  text += R"("done":{"type":"boolean"}},"required":["done"]})";
  return text;
}

ConstraintSpec schema(std::string text) { return {.kind = ConstraintSpec::Kind::json_schema, .text = std::move(text)}; }

std::shared_ptr<const Constraint> compile(ConstraintCompiler& compiler, const ConstraintSpec& spec) {
  auto compiled = compiler.compile(spec);
  if (!compiled.ok()) {
    fmt::print(stderr, "grammar_bench: {}\n", compiled.error().message);
    std::exit(1);
  }
  return std::move(compiled).value();
}

void compiling(ConstraintCompiler& compiler) {
  int64_t start = now_us();
  compile(compiler, {.kind = ConstraintSpec::Kind::json_object});
  fmt::print("  the first constraint of a process also sorts the vocabulary: {:.0f} ms\n",
             static_cast<double>(now_us() - start) * 1e-3);
  double first = 1e9;
  for (int i = 0; i < 5; ++i) {
    const ConstraintSpec spec = schema(schema_text(fmt::format("thing{}", i)));
    start = now_us();
    compile(compiler, spec);
    first = std::min(first, static_cast<double>(now_us() - start));
  }
  const ConstraintSpec known = schema(schema_text("thing0"));
  start = now_us();
  for (int i = 0; i < 1000; ++i) compile(compiler, known);
  const double again = static_cast<double>(now_us() - start) * 1e-3;
  fmt::print(
      "JSON schema of {} bytes compiled, cold / cached: {:.1f} ms / {:.1f} us (must <= 20 ms / 20 us, aim 5 ms)\n",
      known.text.size(), first * 1e-3, again);
}

/// Random tokens that the masks allow, as a model might choose them.
void filling(ConstraintCompiler& compiler, int32_t end) {
  const auto constraint = compile(compiler, schema(schema_text("thing0")));
  std::mt19937 random(3);
  std::vector<double> times;
  std::vector<uint32_t> words;
  for (int answer = 0; answer < 20; ++answer) {
    const auto matcher = constraint->start();
    for (int i = 0; i < 200; ++i) {
      const auto start = std::chrono::steady_clock::now();
      if (!matcher->fill(words)) break;
      times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
      std::vector<int32_t> ids;
      for (int32_t id = 0; id < static_cast<int32_t>(words.size()) * 32; ++id) {
        if ((words[static_cast<size_t>(id) / 32] >> (id % 32) & 1U) != 0) ids.push_back(id);
      }
      const int32_t token = ids[random() % ids.size()];
      if (token == end || !matcher->accept(token)) break;
    }
  }
  std::sort(times.begin(), times.end());
  double sum = 0;
  for (const double time : times) sum += time;
  fmt::print("filling one mask, mean / p99 of {}: {:.1f} / {:.1f} us (must <= 50 us mean)\n", times.size(),
             sum / static_cast<double>(times.size()), times[times.size() * 99 / 100]);
}

/// When the tokens of one request came, seen on the engine thread.
class Stopwatch final : public EventSink {
 public:
  void deliver(TokenEvent event) override {
    const int64_t now = now_us();
    if (first_us_ == 0) first_us_ = now;
    last_us_ = now;
    if (event.finish) ended_.try_send(std::move(event));
  }
  /// Milliseconds per token after the first, once it has ended.
  double wait() {
    const TokenEvent event = *ended_.receive();
    if (event.finish != FinishReason::length) fmt::print(stderr, "grammar_bench: {}\n", event.error);
    return static_cast<double>(last_us_ - first_us_) * 1e-3 / std::max(1, event.output_tokens - 1);
  }

 private:
  int64_t first_us_ = 0;
  int64_t last_us_ = 0;
  Channel<TokenEvent> ended_;
};

/// Milliseconds per token of the first and of the last half of 32 requests that run together; the last half is
/// constrained when there is a constraint.
std::pair<double, double> token_ms(Instance& instance, const Constraints& constraints, const Constraint* constraint) {
  static uint64_t next_id = 1;
  std::mt19937 random(1);
  std::uniform_int_distribution<int32_t> any(100, instance.tokenizer->size() - 1);
  std::vector<std::shared_ptr<Stopwatch>> watches;
  for (int i = 0; i < rows; ++i) {
    Request request;
    request.id = RequestId{next_id++};
    for (int k = 0; k < 16; ++k) request.prompt.push_back(any(random));
    request.max_tokens = answer_tokens;
    request.sampling.seed = static_cast<uint64_t>(i + 1);
    if (constraint != nullptr && i >= rows / 2) request.mask = constraints.mask(*constraint);
    watches.push_back(std::make_shared<Stopwatch>());
    request.sink = watches.back();
    instance.engine->submit(std::move(request));
  }
  double halves[2] = {};
  for (int i = 0; i < rows; ++i) halves[i / (rows / 2)] += watches[static_cast<size_t>(i)]->wait() / (rows / 2);
  return {halves[0], halves[1]};
}

void beside_free_rows(Instance& instance, const Constraints& constraints, ConstraintCompiler& compiler) {
  const auto endless = compile(
      compiler,
      schema(
          R"({"type":"array","minItems":1000,"items":{"type":"object","properties":{"name":{"type":"string","maxLength":40},)"
          R"("value":{"type":"number"},"kind":{"enum":["one","two"]}},"required":["name","value","kind"]}})"));
  // In pairs, for a machine's speed drifts; the median of them.
  std::vector<std::array<double, 3>> pairs;
  for (int round = 0; round < 9; ++round) {
    const auto [first, second] = token_ms(instance, constraints, nullptr);
    const double free = (first + second) / 2;
    const auto [beside, constrained] = token_ms(instance, constraints, endless.get());
    pairs.push_back({constrained / free, beside / free, free});
  }
  std::ranges::sort(pairs);
  const auto [constrained, beside, free] = pairs[pairs.size() / 2];
  fmt::print(
      "16 rows with a grammar beside 16 without, time per token of each against 32 without: {:.2f} and {:.2f} / {:.2f} "
      "ms = {:.3f}x and {:.3f}x (must <= 1.05x, aim 1.02x)\n",
      constrained * free, beside * free, free, constrained, beside);
}

}  // namespace
}  // namespace quern

int main(int count, char** words) {
  using namespace quern;
  InstanceOptions options;
  options.model = count > 1 ? words[1] : "";
  options.quiet = true;
  options.max_num_seqs = rows;
  auto instance = make_instance(options);
  if (!instance.ok()) {
    fmt::print(stderr, "grammar_bench: {}\n", instance.error().message);
    return 1;
  }
  const int32_t vocab = (*instance)->spec().vocab;
  const std::vector<int32_t> ends = (*instance)->generation.end_tokens;
  ConstraintCompiler compiler((*instance)->tokenizer, vocab, ends);
  Constraints constraints((*instance)->tokenizer, vocab, ends);
  compiling(compiler);
  filling(compiler, ends.front());
  beside_free_rows(**instance, constraints, compiler);
  constraints.stop();
  return 0;
}
