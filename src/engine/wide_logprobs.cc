#include "engine/wide_logprobs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/sample.h"

namespace quern {
namespace {

/// The logarithm of the sum of e^x.
double log_sum(std::span<const float> logits) {
  const float most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += static_cast<double>(std::exp(logit - most));
  return static_cast<double>(most) + std::log(sum);
}

/// The `best` largest ones and those that are named, the best first; where equal logits compete, the lower token.
std::vector<int32_t> chosen_tokens(std::span<const float> logits, const LogprobsWanted& wanted) {
  const auto better = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)];
    const float y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  std::vector<int32_t> order;
  if (wanted.best > 0) {
    order.resize(logits.size());
    std::iota(order.begin(), order.end(), 0);
    const auto most = static_cast<std::ptrdiff_t>(std::min(order.size(), static_cast<size_t>(wanted.best)));
    std::partial_sort(order.begin(), order.begin() + most, order.end(), better);
    order.resize(static_cast<size_t>(most));
  }
  order.insert(order.end(), wanted.tokens.begin(), wanted.tokens.end());
  std::erase_if(order, [&](int32_t token) { return token < 0 || static_cast<size_t>(token) >= logits.size(); });
  if (!wanted.tokens.empty()) std::ranges::sort(order, better);
  order.erase(std::unique(order.begin(), order.end()), order.end());
  return order;
}

}  // namespace

bool LogprobsWanted::wide() const {
  return best >= 0 && (best > max_top_logprobs || !tokens.empty() || logits || processed);
}

LogprobsWanted wanted_of_answer(const SamplingParams& sampling) {
  return {sampling.logprobs, sampling.logprob_ids, sampling.tell_logits, sampling.tell_processed};
}

LogprobsWanted wanted_of_prompt(const SamplingParams& sampling) {
  return {sampling.prompt_logprobs, {}, sampling.tell_logits};
}

TokenLogprobs wide_logprobs(std::span<const float> logits, int32_t token, const LogprobsWanted& wanted) {
  const double normalizer = wanted.logits ? 0.0 : log_sum(logits);
  const auto told = [&](int32_t id) {
    return static_cast<float>(static_cast<double>(logits[static_cast<size_t>(id)]) - normalizer);
  };
  const float logit = logits[static_cast<size_t>(token)];
  TokenLogprobs made{told(token), {}, 1 + static_cast<int32_t>(std::ranges::count_if(logits, [&](float other) {
                                        return other > logit;
                                      }))};
  const std::vector<int32_t> tokens = chosen_tokens(logits, wanted);
  made.top.reserve(tokens.size());
  for (const int32_t id : tokens) made.top.emplace_back(id, told(id));
  return made;
}

void HostLogits::add(Tensor logits) {
  const auto vocab = static_cast<size_t>(logits.dims[1]);
  if (device_.host_addressable()) {
    rows_.emplace_back(logits.as<float>(), vocab);
    return;
  }
  if (used_ == copies_.size()) copies_.emplace_back();
  std::vector<float>& copy = copies_[used_++];
  copy.resize(vocab);
  device_.copy_out(reinterpret_cast<std::byte*>(copy.data()), logits.data, static_cast<int64_t>(vocab * sizeof(float)));
  rows_.emplace_back(copy);
}

}  // namespace quern
