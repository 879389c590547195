// What continuous batching, paging and prefix reuse are worth, with a real model on this machine:
//   serving_bench [MODEL]
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "apps/instance.h"
#include "apps/pending.h"
#include "base/clock.h"

namespace quern {
namespace {

constexpr int together = 8;  // sequences that run together

Request random_request(const Instance& instance, std::mt19937& random, int prompt, int output) {
  Request request;
  std::uniform_int_distribution<int32_t> any(100, std::min(instance.spec().vocab, instance.tokenizer->size()) - 1);
  for (int i = 0; i < prompt; ++i) request.prompt.push_back(any(random));
  request.max_tokens = output;
  request.sampling.temperature = 0.0F;
  return request;
}

std::unique_ptr<Instance> make(const std::string& model, const std::function<void(InstanceOptions&)>& adjust) {
  InstanceOptions options;
  options.model = model;
  options.quiet = true;
  options.max_num_seqs = together;
  adjust(options);
  auto instance = make_instance(options);
  if (!instance.ok()) {
    fmt::print(stderr, "serving_bench: {}\n", instance.error().message);
    std::exit(1);
  }
  return std::move(*instance);
}

/// Lengths of answers: in each group of eight one long one, at a seeded place.
std::vector<int> mixed_lengths(int groups) {
  std::vector<int> lengths;
  std::mt19937 random(7);
  for (int i = 0; i < groups; ++i) {
    lengths.insert(lengths.end(), together, 16);
    lengths[lengths.size() - 1 - random() % together] = 512;
  }
  return lengths;
}

std::vector<std::shared_ptr<Pending>> submit_all(Instance& instance, std::mt19937& random,
                                                 std::span<const int> lengths) {
  std::vector<std::shared_ptr<Pending>> pending;
  for (const int length : lengths) {
    pending.push_back(Pending::submit(*instance.engine, random_request(instance, random, 16, length)).value());
  }
  return pending;
}

void batching(Instance& instance) {
  const std::vector<int> lengths = mixed_lengths(16);
  double tokens = 0;
  for (const int length : lengths) tokens += length;
  std::mt19937 random(1);

  int64_t start = now_us();
  for (size_t begin = 0; begin < lengths.size(); begin += together) {
    for (const auto& answer : submit_all(instance, random, std::span(lengths).subspan(begin, together))) answer->wait();
  }
  const double fixed = tokens / seconds_since(start);

  const EngineStats before = instance.engine->stats();
  start = now_us();
  for (const auto& answer : submit_all(instance, random, lengths)) answer->wait();
  const double seconds = seconds_since(start);
  const EngineStats after = instance.engine->stats();
  const double continuous = tokens / seconds;
  // Nothing but the device's own time of the same steps.
  const double ideal = tokens / (static_cast<double>(after.device_us - before.device_us) * 1e-6);
  fmt::print("static batches of 8 against continuous: {:.1f} / {:.1f} tokens/s = {:.2f}x (must >= 1.6x, aim 2.2x)\n",
             fixed, continuous, continuous / fixed);
  fmt::print("continuous against the device time of the same steps: {:.1f} % (must >= 90 %, aim 96 %)\n",
             100 * continuous / ideal);
}

void prefix_hit(Instance& instance) {
  std::mt19937 random(3);
  const auto time_of = [&](const Request& request) {
    return Pending::submit(*instance.engine, request).value()->wait();
  };
  const Request prompt = random_request(instance, random, 4096, 1);
  time_of(prompt);
  double hit = 1e9;
  double one = 1e9;
  int32_t cached = 0;
  for (int i = 0; i < 5; ++i) {
    const Reply again = time_of(prompt);
    hit = std::min(hit, static_cast<double>(again.times.first_token_us) * 1e-3);
    cached = again.times.cached_tokens;
    one =
        std::min(one, static_cast<double>(time_of(random_request(instance, random, 1, 1)).times.first_token_us) * 1e-3);
  }
  fmt::print(
      "first token after a hit of 4,096 tokens, minus a 1-token prompt: {:.1f} - {:.1f} = {:.1f} ms, {} cached "
      "(must <= 20 ms, aim 8 ms)\n",
      hit, one, hit - one, cached);
}

/// Tokens per second of many short requests when admission reserves the whole context, and when it pages.
double admission_rate(const std::string& model, bool reserve) {
  const auto instance = make(model, [&](InstanceOptions& options) {
    options.max_num_seqs = 32;
    options.kv_cache_memory_bytes = int64_t{192} << 20;
    options.max_model_len = "8192";  // the model's own context
    options.reserve_max_len = reserve;
  });
  std::mt19937 random(5);
  std::vector<std::shared_ptr<Pending>> pending;
  double tokens = 0;
  const int64_t start = now_us();
  for (int i = 0; i < 96; ++i) {
    pending.push_back(Pending::submit(*instance->engine, random_request(*instance, random, 16, 48)).value());
  }
  for (const auto& answer : pending) tokens += answer->wait().times.output_tokens;
  return tokens / seconds_since(start);
}

}  // namespace
}  // namespace quern

int main(int count, char** words) {
  using namespace quern;
  const std::string model = count > 1 ? words[1] : "";
  {
    const auto instance = make(model, [](InstanceOptions&) {});
    batching(*instance);
    prefix_hit(*instance);
  }
  const double reserved = admission_rate(model, true);
  const double paged = admission_rate(model, false);
  fmt::print(
      "admission that reserves the context against paged: {:.1f} / {:.1f} tokens/s = {:.2f}x (must >= 2x, aim 3x)\n",
      reserved, paged, paged / reserved);
  return 0;
}
