// Sampling without sorting: thresholds are found digit by digit in the bits of the weights, draws walk block sums.
#include "ops/sample.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/simd.h"
#include "base/thread_pool.h"

namespace quern::QUERN_ISA {
namespace {

constexpr int32_t block = 512;  // values looked at together
constexpr float lowest = -std::numeric_limits<float>::infinity();

/// Calls body(begin, end) for blocks of [0, count) until it returns false.
template <typename Body>
void for_blocks(int32_t count, Body&& body) {
  for (int32_t begin = 0; begin < count; begin += block) {
    if (!body(begin, std::min(count, begin + block))) return;
  }
}

// ---- one pass over values

struct Best {
  float value = lowest;
  int32_t token = -1;  // the first of that value
  bool finite = true;  // every value is a finite number
};

Best find_best(const float* x, int32_t count) {
  Best best;
  Floats zeros{};  // stays zero while values are finite
  for_blocks(count, [&](int32_t begin, int32_t end) {
    Floats larger = broadcast(lowest);
    int32_t i = begin;
    for (; i + lanes <= end; i += lanes) {
      const Floats value = load(x + i);
      larger = max(value, larger);
      zeros = fma(value, Floats{}, zeros);
    }
    float top = largest(larger);
    for (; i < end; ++i) {
      top = std::max(top, x[i]);
      best.finite &= std::isfinite(x[i]);
    }
    if (top > best.value) {
      best.value = top;
      best.token = static_cast<int32_t>(std::find(x + begin, x + end, top) - x);
    }
    return true;
  });
  best.finite &= sum(zeros) == 0.0F;
  return best;
}

float sum_of(const float* x, int32_t begin, int32_t end) {
  Floats sums{};
  int32_t i = begin;
  for (; i + lanes <= end; i += lanes) sums += load(x + i);
  float total = sum(sums);
  for (; i < end; ++i) total += x[i];
  return total;
}

double sum_of(const float* x, int32_t count) {
  double total = 0;
  for_blocks(count,
             [&](int32_t begin, int32_t end) { return total += static_cast<double>(sum_of(x, begin, end)), true; });
  return total;
}

// ---- log-probabilities of the logits as they came

/// The logarithm of the sum of e^(x - maximum).
double log_sum(const float* x, int32_t count, float maximum) {
  double total = 0;
  for_blocks(count, [&](int32_t begin, int32_t end) {
    float weights[block];
    map(weights, x + begin, end - begin, [&](Floats value) { return exp(value - maximum); });
    total += static_cast<double>(sum_of(weights, 0, end - begin));
    return true;
  });
  return std::log(total);
}

void find_top(Sampled& result, const float* x, int32_t count, int32_t wanted) {
  auto& top = result.top;
  wanted = std::min(wanted, count);
  result.top_count = wanted;
  if (wanted <= 0) return;
  for (int32_t i = 0; i < wanted; ++i) top[static_cast<size_t>(i)] = {-1, lowest};
  float& least = top[static_cast<size_t>(wanted - 1)].logprob;
  for_blocks(count, [&](int32_t begin, int32_t end) {
    for (int32_t i = begin; i < end; ++i) {
      if (x[i] <= least) continue;
      int32_t place = wanted - 1;
      for (; place > 0 && top[static_cast<size_t>(place - 1)].logprob < x[i]; --place) {
        top[static_cast<size_t>(place)] = top[static_cast<size_t>(place - 1)];
      }
      top[static_cast<size_t>(place)] = {i, x[i]};
    }
    return true;
  });
}

void add_logprobs(Sampled& result, const float* x, int32_t count, float maximum, int32_t wanted) {
  const double normalizer = log_sum(x, count, maximum);
  const auto logprob = [&](float value) {
    return static_cast<float>(static_cast<double>(value - maximum) - normalizer);
  };
  find_top(result, x, count, wanted);
  for (int32_t i = 0; i < result.top_count; ++i) {
    result.top[static_cast<size_t>(i)].logprob = logprob(result.top[static_cast<size_t>(i)].logprob);
  }
  result.logprob = logprob(x[result.token]);
}

// ---- what a request does to logits

void copy_allowed(float* to, const float* x, int32_t count, std::span<const uint32_t> allowed) {
  if (allowed.empty()) {
    std::copy_n(x, count, to);
    return;
  }
  for (int32_t i = 0; i < count; ++i) {
    to[i] = (allowed[static_cast<size_t>(i) / 32] >> (i % 32) & 1U) != 0 ? x[i] : lowest;
  }
}

/// Ids outside the vocabulary are passed over.
void adjust(float* to, const float* x, int32_t count, const SampleRow& row) {
  const auto known = [&](int32_t token) { return token >= 0 && token < count; };
  copy_allowed(to, x, count, row.allowed);
  for (const int32_t token : row.banned) {
    if (known(token)) to[token] = lowest;
  }
  for (const auto& [token, bias] : row.biases) {
    if (known(token)) to[token] += bias;
  }
  for (const TokenCount& entry : row.counts) {
    if (!known(entry.token)) continue;
    float& logit = to[entry.token];
    logit = logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
    if (entry.outputs == 0) continue;
    logit -= static_cast<float>(entry.outputs) * row.frequency_penalty;
    logit -= row.presence_penalty;
  }
}

bool adjusts(const SampleRow& row) {
  return !row.allowed.empty() || !row.banned.empty() || !row.biases.empty() || !row.counts.empty();
}

// ---- thresholds

/// Weights above `weight` are kept, and of those equal to it the first `ties`.
struct Cutoff {
  float weight = 0.0F;
  int64_t ties = std::numeric_limits<int64_t>::max();
};

/// Of the weights in descending order (positive ones, at most 1), the fewest whose number (or whose sum, `by_sum`)
/// reaches `goal`. Three passes, each of which settles some bits of the threshold.
Cutoff find_cutoff(const float* weights, int32_t count, double goal, bool by_sum) {
  double above = 0;  // number or sum of the weights known to be larger than the threshold
  uint64_t prefix = 0;
  for (const int shift : {20, 10, 0}) {
    const int digits = shift == 20 ? 12 : 10;
    double buckets[4096] = {};
    for (int32_t i = 0; i < count; ++i) {
      const uint64_t bits = std::bit_cast<uint32_t>(weights[i]);
      if (bits == 0 || bits >> (shift + digits) != prefix) continue;
      buckets[bits >> shift & ((1U << digits) - 1)] += by_sum ? static_cast<double>(weights[i]) : 1.0;
    }
    // Down to the bucket where the goal is reached, or to the last that holds anything.
    int64_t found = -1;
    for (int64_t i = (1 << digits) - 1; i >= 0; --i) {
      if (buckets[i] == 0) continue;
      if (found >= 0) above += buckets[found];
      found = i;
      if (above + buckets[i] >= goal) break;
    }
    if (found < 0) return {};
    prefix = prefix << digits | static_cast<uint64_t>(found);
  }
  const float weight = std::bit_cast<float>(static_cast<uint32_t>(prefix));
  const double missing = by_sum ? std::ceil((goal - above) / static_cast<double>(weight)) : goal - above;
  return {weight, std::max<int64_t>(1, static_cast<int64_t>(missing))};
}

/// Sets to 0 what is not kept.
void cut(float* weights, int32_t count, Cutoff cutoff) {
  for (int32_t i = 0; i < count; ++i) {
    if (weights[i] > cutoff.weight || (weights[i] == cutoff.weight && cutoff.ties-- > 0)) continue;
    weights[i] = 0.0F;
  }
}

// ---- the draw

/// Philox 4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw 2011), counter (position, 0), key seed: 53 bits in [0, 1).
double uniform(uint64_t seed, int64_t position) {
  auto key0 = static_cast<uint32_t>(seed);
  auto key1 = static_cast<uint32_t>(seed >> 32);
  const auto low = static_cast<uint32_t>(static_cast<uint64_t>(position));
  const auto high = static_cast<uint32_t>(static_cast<uint64_t>(position) >> 32);
  uint32_t counter[4] = {low, high, 0, 0};
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53U} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57U} * counter[2];
    const uint32_t next[4] = {
        static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
        static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
    std::copy_n(next, 4, counter);
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  const uint64_t bits = (uint64_t{counter[0]} << 32 | counter[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

/// The token at which the running sum of weights passes `share` of their total.
int32_t draw(const float* weights, int32_t count, double share) {
  const double target = share * sum_of(weights, count);
  double before = 0;
  int32_t token = -1;
  for_blocks(count, [&](int32_t begin, int32_t end) {
    const auto in_block = static_cast<double>(sum_of(weights, begin, end));
    if (before + in_block <= target) return before += in_block, true;
    for (int32_t i = begin; i < end && before <= target; ++i) {
      if (weights[i] > 0) token = i;
      before += static_cast<double>(weights[i]);
    }
    return false;
  });
  // Only rounding can leave the target above every sum: the last token that has any weight.
  for (int32_t i = count - 1; token < 0; --i) {
    if (weights[i] > 0) token = i;
  }
  return token;
}

/// `weights` has the logits; `maximum` is the largest.
int32_t choose(float* weights, int32_t count, float maximum, const SampleRow& row) {
  const float inverse = 1.0F / row.temperature;
  map(weights, weights, count, [&](Floats logit) { return exp((logit - maximum) * inverse); });
  if (row.min_p > 0) cut(weights, count, {std::min(row.min_p, 1.0F)});
  if (row.top_k > 0 && row.top_k < count) cut(weights, count, find_cutoff(weights, count, row.top_k, false));
  if (row.top_p < 1) {
    const double goal = static_cast<double>(row.top_p) * sum_of(weights, count);
    cut(weights, count, find_cutoff(weights, count, goal, true));
  }
  return draw(weights, count, uniform(row.seed, row.position));
}

void sample_row(Sampled& result, const float* x, int32_t count, const SampleRow& row, float* scratch) {
  result = {};
  const Best raw = find_best(x, count);
  if (!raw.finite) {
    result.status = SampleStatus::not_finite;
    return;
  }
  const bool greedy = row.temperature < 1e-5F;
  Best best = raw;
  if (row.forced >= 0) {
    best.token = row.forced;
  } else if (adjusts(row)) {
    adjust(scratch, x, count, row);
    best = find_best(scratch, count);
  } else if (!greedy) {
    std::copy_n(x, count, scratch);
  }
  if (best.token < 0) {
    result.status = SampleStatus::nothing_allowed;
    return;
  }
  result.token = greedy || row.forced >= 0 ? best.token : choose(scratch, count, best.value, row);
  if (row.logprobs >= 0) add_logprobs(result, x, count, raw.value, row.logprobs);
}

void sample(Queue queue, Tensor logits, std::span<const SampleRow> rows, std::span<Sampled> results, Tensor scratch) {
  auto& pool = *static_cast<ThreadPool*>(queue.native);
  const int64_t at_once = scratch.dims[0];
  for (int64_t first = 0; first < logits.dims[0]; first += at_once) {
    pool.parallel_for(std::min(at_once, logits.dims[0] - first), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto row = static_cast<size_t>(first + i);
        sample_row(results[row], logits.row<float>(first + i), logits.dims[1], rows[row], scratch.row<float>(i));
      }
    });
  }
}

const bool added = kernels::sample.add(DeviceKind::cpu, Isa::QUERN_ISA, sample);

}  // namespace
}  // namespace quern::QUERN_ISA
