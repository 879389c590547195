// Sampling without sorting: thresholds are found digit by digit in the bits of the weights, draws walk block sums.
#include "ops/sample.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "backend/cpu/simd.h"
#include "base/thread_pool.h"
#include "ops/philox.h"

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

/// Calls body(i) where test(x[i]) holds, in ascending order. Whole vectors where it does not cost little.
template <typename Test, typename Body>
void for_each_where(const float* x, int32_t count, Test&& test, Body&& body) {
  int32_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    if (!any(test(load(x + i)))) continue;
    for (int32_t lane = i; lane < i + lanes; ++lane) {
      if (test(x[lane])) body(lane);
    }
  }
  for (; i < count; ++i) {
    if (test(x[i])) body(i);
  }
}

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
  for_each_where(
      x, count, [&](auto value) { return value > least; },
      [&](int32_t i) {
        int32_t place = wanted - 1;
        for (; place > 0 && top[static_cast<size_t>(place - 1)].logprob < x[i]; --place) {
          top[static_cast<size_t>(place)] = top[static_cast<size_t>(place - 1)];
        }
        top[static_cast<size_t>(place)] = {i, x[i]};
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

/// How many logits are larger.
int32_t count_above(const float* x, int32_t count, float logit) {
  Ints found{};
  int32_t i = 0;
  for (; i + lanes <= count; i += lanes) found -= load(x + i) > logit;
  int32_t total = 0;
  for (int lane = 0; lane < lanes; ++lane) total += found[lane];
  for (; i < count; ++i) total += x[i] > logit ? 1 : 0;
  return total;
}

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

/// Weights above `weight` are kept, and of those equal to it the first `ties`.
struct Cutoff {
  float weight = 0.0F;
  int64_t ties = std::numeric_limits<int64_t>::max();
};

/// Weights counted (or summed, `by_sum`) by some of their bits.
struct Buckets {
  static constexpr int64_t size = 1024;
  double amounts[size];
  int64_t found = -1;  // where the goal is reached, or the last one that holds anything
  double above = 0;    // amount of the buckets above it
  bool reached = false;

  /// Of weights whose keys are from `floor` on and have the bits `prefix` above the bucket's.
  template <typename Key>
  void fill(const float* weights, int32_t count, Key key, float floor, int shift, uint32_t prefix, bool by_sum) {
    std::fill_n(amounts, size, 0.0);
    for_each_where(
        weights, count, [&](auto weight) { return key(weight) >= floor; },
        [&](int32_t i) {
          const uint32_t digits = std::bit_cast<uint32_t>(key(weights[i])) >> shift;
          if (digits / size == prefix) amounts[digits % size] += by_sum ? static_cast<double>(weights[i]) : 1.0;
        });
  }

  void find(double already_above, double goal) {
    found = -1;
    above = already_above;
    reached = false;
    for (int64_t i = size - 1; i >= 0 && !reached; --i) {
      if (amounts[i] == 0) continue;
      if (found >= 0) above += amounts[found];
      found = i;
      reached = above + amounts[i] >= goal;
    }
  }
};

/// Of the weights in the order of falling keys (at most 1), the fewest of positive keys whose number (or whose sum,
/// `by_sum`) reaches `goal`: the last one's key. Three rounds settle ten bits of it each; keys at most 1 have no more
/// than 30. The buckets are left as they were in the last round.
template <typename Key>
float find_threshold(Buckets& buckets, const float* weights, int32_t count, Key key, double goal, bool by_sum) {
  // The goal is mostly reached among the few largest keys.
  for (const float floor : {0x1p-10F, 0x1p-20F, 0x1p-126F}) {
    buckets.fill(weights, count, key, floor, 20, 0, by_sum);
    buckets.find(0, goal);
    if (buckets.reached) break;
  }
  auto threshold = static_cast<uint32_t>(buckets.found);
  for (const int shift : {10, 0}) {
    const auto floor = std::bit_cast<float>(threshold << (shift + 10));
    buckets.fill(weights, count, key, floor, shift, threshold, by_sum);
    buckets.find(buckets.above, goal);
    threshold = threshold * Buckets::size + static_cast<uint32_t>(buckets.found);
  }
  return std::bit_cast<float>(threshold);
}

/// The largest weights whose number (or whose sum, `by_sum`) reaches `goal`.
Cutoff find_cutoff(const float* weights, int32_t count, double goal, bool by_sum) {
  Buckets buckets;
  const float weight = find_threshold(buckets, weights, count, [](auto each) { return each; }, goal, by_sum);
  const double missing = goal - buckets.above;
  return {weight,
          static_cast<int64_t>(std::max(1.0, by_sum ? std::ceil(missing / static_cast<double>(weight)) : missing))};
}

/// Sets to 0 what is not kept.
void cut(float* weights, int32_t count, Cutoff cutoff) {
  const auto cut_one = [&](float& weight) {
    if (weight < cutoff.weight || (weight == cutoff.weight && cutoff.ties-- <= 0)) weight = 0.0F;
  };
  int32_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const Floats values = load(weights + i);
    if (any(values == cutoff.weight)) {
      for (int lane = 0; lane < lanes; ++lane) cut_one(weights[i + lane]);
    } else {
      store(weights + i, values > cutoff.weight ? values : Floats{});
    }
  }
  for (; i < count; ++i) cut_one(weights[i]);
}

/// Sets to 0 what is not typical. The surprise of a weight is minus its logarithm; a weight's key falls with the
/// distance of its surprise from the mean one.
void cut_untypical(float* weights, int32_t count, float typical_p) {
  const double total = sum_of(weights, count);
  double surprise = 0;
  for (int32_t i = 0; i < count; ++i) {
    const auto weight = static_cast<double>(weights[i]);
    if (weight > 0) surprise -= weight * std::log(weight);
  }
  const auto typical = static_cast<float>(std::exp(-surprise / total));
  const auto key = [&](auto weight) { return weight < typical ? weight / typical : typical / weight; };
  Buckets buckets;
  const float least =
      find_threshold(buckets, weights, count, key, std::max(static_cast<double>(typical_p), 1e-6) * total, true);
  map(weights, weights, count, [&](Floats weight) { return key(weight) >= least ? weight : Floats{}; });
}

/// In [0, 1), 53 random bits that depend on nothing else.
double uniform(uint64_t seed, int64_t position) {
  const auto place = static_cast<uint64_t>(position);
  const auto words = philox({static_cast<uint32_t>(place), static_cast<uint32_t>(place >> 32), 0, 0},
                            {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return static_cast<double>((uint64_t{words[0]} << 32 | words[1]) >> 11) * 0x1p-53;
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
  for (int32_t i = count - 1; token < 0 && i >= 0; --i) {
    if (weights[i] > 0) token = i;
  }
  return token;
}

bool cuts(const SampleRow& row, int32_t count) {
  return row.min_p > 0 || (row.top_k > 0 && row.top_k < count) || row.typical_p < 1 || row.top_p < 1;
}

/// `weights` has the logits; `maximum` is the largest. In the end `weights` has what is kept.
int32_t choose(float* weights, int32_t count, float maximum, const SampleRow& row) {
  const float inverse = 1.0F / row.temperature;
  map(weights, weights, count, [&](Floats logit) { return exp((logit - maximum) * inverse); });
  if (row.min_p > 0) cut(weights, count, {std::min(row.min_p, 1.0F)});
  if (row.top_k > 0 && row.top_k < count) cut(weights, count, find_cutoff(weights, count, row.top_k, false));
  if (row.typical_p < 1) cut_untypical(weights, count, row.typical_p);
  if (row.top_p < 1) {
    const double goal = static_cast<double>(row.top_p) * sum_of(weights, count);
    cut(weights, count, find_cutoff(weights, count, goal, true));
  }
  return draw(weights, count, uniform(row.seed, row.position));
}

/// Divides logits by the temperature, and takes away those whose weights are not kept.
void process(float* x, const float* weights, int32_t count, const SampleRow& row) {
  const bool all = !cuts(row, count);
  for (int32_t i = 0; i < count; ++i) x[i] = all || weights[i] > 0 ? x[i] / row.temperature : lowest;
}

void sample_row(Sampled& result, float* x, int32_t count, const SampleRow& row, float* scratch) {
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
  if (row.processed && adjusts(row)) std::copy_n(scratch, count, x);
  result.token = greedy || row.forced >= 0 ? best.token : choose(scratch, count, best.value, row);
  if (row.processed && !greedy) process(x, scratch, count, row);
  if (row.logprobs < 0) return;
  add_logprobs(result, x, count, raw.value, row.logprobs);
  if (row.forced >= 0) result.rank = 1 + count_above(x, count, x[row.forced]);
}

constexpr int64_t rows_at_once = 16;

/// A working copy of as many rows as are done at once.
void sample_scratch(Queue /*queue*/, int32_t rows, int32_t vocab, int64_t& bytes) {
  bytes = std::min<int64_t>(rows, rows_at_once) * vocab * static_cast<int64_t>(sizeof(float));
}

void sample(Queue queue, Tensor logits, std::span<const SampleRow> rows, std::span<Sampled> results, Tensor next,
            std::byte* scratch) {
  auto& pool = *static_cast<ThreadPool*>(queue.native);
  const int64_t at_once = std::min<int64_t>(logits.dims[0], rows_at_once);
  auto* const copies = reinterpret_cast<float*>(scratch);
  for (int64_t first = 0; first < logits.dims[0]; first += at_once) {
    pool.parallel_for(std::min(at_once, logits.dims[0] - first), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto row = static_cast<size_t>(first + i);
        sample_row(results[row], logits.row<float>(first + i), logits.dims[1], rows[row], copies + i * logits.dims[1]);
        if (rows[row].next >= 0) next.as<int32_t>()[rows[row].next] = results[row].token;
      }
    });
  }
}

const bool scratch_added = kernels::sample_scratch.add(DeviceKind::cpu, Isa::QUERN_ISA, sample_scratch);
const bool added = kernels::sample.add(DeviceKind::cpu, Isa::QUERN_ISA, sample);

}  // namespace
}  // namespace quern::QUERN_ISA
