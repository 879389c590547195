// Which tokens of a row are kept, and the draw from them: thresholds are found digit by digit in the bits of the
// weights. Weights are summed as integers, so that the order of adding does not matter. One block for a row.
#pragma once

#include "backend/cuda/sample_parts.cuh"

#ifdef __CUDACC__
namespace quern::cuda {

inline constexpr int finish_threads = 1024;
inline constexpr int buckets = 1024;
inline constexpr int digit_bits = 10;
inline constexpr int list_size = 4096;

struct Listed {
  int token;
  float logit;
};

struct Found {
  int bucket = -1;
  uint64_t before = 0;  // amount of the buckets that come first
  uint64_t amount = 0;
};

/// Memory of a block.
struct Workplace {
  uint32_t low[buckets];  // amounts by bucket, in two halves: 64-bit additions are slow in shared memory
  uint32_t high[buckets];
  uint64_t totals[finish_threads / 32];
  Found found;
  Listed list[list_size];
  int listed;
  float floor;
  float bests[max_groups];  // of the groups of the row
};

/// Logits to weights, at most 1, and below the smallest normal number 0.
struct Weigh {
  float maximum;
  float inverse_temperature;
  __device__ __forceinline__ float operator()(float logit) const {
    const float weight = expf((logit - maximum) * inverse_temperature);
    return weight >= FLT_MIN ? weight : 0.0F;
  }
};
/// Weights as integers; the sum over the largest vocabulary stays below 2^64.
inline constexpr float weight_one = 0x1p43F;
__device__ __forceinline__ uint64_t fixed(float weight) { return __float2ull_rn(weight * weight_one); }

/// What is kept: larger weights than this, and of those equal to it the tokens up to the last.
struct Cut {
  uint32_t weight = 0;  // its bits
  int last = INT_MAX;
  __device__ __forceinline__ bool keeps(uint32_t bits, int token) const {
    return bits != 0 && (bits > weight || (bits == weight && token <= last));
  }
};

/// All logits of a row, or those in the list.
struct Source {
  const float* logits;
  int vocab;
  int listed;  // negative: all

  template <typename Body>
  __device__ __forceinline__ void for_each(const Workplace& w, Body&& body) const {
    if (listed >= 0) {
      for (int i = threadIdx.x; i < listed; i += finish_threads) body(w.list[i].token, w.list[i].logit);
      return;
    }
#pragma unroll 4
    for (int token = threadIdx.x; token < vocab; token += finish_threads) body(token, logits[token]);
  }
};

/// A sum over the block in all threads.
__device__ inline uint64_t block_total(Workplace& w, uint64_t amount) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) amount += __shfl_xor_sync(0xFFFFFFFFU, amount, step);
  __syncthreads();
  if (threadIdx.x % 32 == 0) w.totals[threadIdx.x / 32] = amount;
  __syncthreads();
  uint64_t total = 0;
  for (int warp = 0; warp < finish_threads / 32; ++warp) total += w.totals[warp];
  return total;
}

__device__ inline void clear_buckets(Workplace& w) {
  __syncthreads();
  w.low[threadIdx.x] = 0;
  w.high[threadIdx.x] = 0;
  __syncthreads();
}

__device__ __forceinline__ void add_to_bucket(Workplace& w, uint32_t bucket, uint64_t amount) {
  const auto low = static_cast<uint32_t>(amount);
  auto high = static_cast<uint32_t>(amount >> 32);
  const uint32_t before = atomicAdd(&w.low[bucket], low);
  if (before + low < before) ++high;
  if (high != 0) atomicAdd(&w.high[bucket], high);
}

/// The bucket in which the running amount, from `before` on, reaches `goal`; none if it never does. From the last
/// bucket to the first with `descending`.
__device__ inline Found find_bucket(Workplace& w, uint64_t before, uint64_t goal, bool descending) {
  static_assert(buckets == finish_threads);
  __syncthreads();
  const int bucket = descending ? buckets - 1 - static_cast<int>(threadIdx.x) : static_cast<int>(threadIdx.x);
  const uint64_t amount = uint64_t{w.high[bucket]} << 32 | w.low[bucket];
  uint64_t running = amount;
  const unsigned lane = threadIdx.x % 32;
#pragma unroll
  for (unsigned step = 1; step < 32; step *= 2) {
    const uint64_t other = __shfl_up_sync(0xFFFFFFFFU, running, step);
    if (lane >= step) running += other;
  }
  if (lane == 31) w.totals[threadIdx.x / 32] = running;
  if (threadIdx.x == 0) w.found = Found{};
  __syncthreads();
  running += before;
  for (unsigned warp = 0; warp < threadIdx.x / 32; ++warp) running += w.totals[warp];
  if (running >= goal && running - amount < goal) w.found = Found{bucket, running - amount, amount};
  __syncthreads();
  return w.found;
}

/// The token at which the running amount of a list or row, in the order of tokens, reaches `goal`. Amounts are
/// amount(token, logit), of few tokens.
template <typename Amount>
__device__ int find_token(Workplace& w, Source source, uint64_t goal, Amount&& amount) {
  Found found;
  for (int shift = digit_bits; shift >= 0; shift -= digit_bits) {
    const int prefix = found.bucket;
    clear_buckets(w);
    source.for_each(w, [&](int token, float logit) {
      if (shift == 0 && token >> digit_bits != prefix) return;
      const uint64_t value = amount(token, logit);
      if (value != 0) add_to_bucket(w, static_cast<uint32_t>(token >> shift) % buckets, value);
    });
    found = find_bucket(w, found.before, goal, false);
    if (found.bucket < 0) return -1;
    if (shift == 0) return prefix << digit_bits | found.bucket;
  }
  return -1;
}

/// Of what `cut` keeps, in the order of falling weights and rising tokens, the fewest whose number (or whose sum,
/// `by_sum`) reaches `goal`.
__device__ inline Cut find_cut(Workplace& w, Source source, Weigh weigh, Cut cut, uint64_t goal, bool by_sum) {
  Found found;
  uint32_t prefix = 0;
  for (int shift = 2 * digit_bits; shift >= 0; shift -= digit_bits) {
    clear_buckets(w);
    source.for_each(w, [&](int token, float logit) {
      const float weight = weigh(logit);
      const uint32_t bits = __float_as_uint(weight);
      if (!cut.keeps(bits, token) || bits >> shift >> digit_bits != prefix) return;
      add_to_bucket(w, (bits >> shift) % buckets, by_sum ? fixed(weight) : 1);
    });
    found = find_bucket(w, found.before, goal, true);
    if (found.bucket < 0) return cut;
    prefix = prefix << digit_bits | static_cast<uint32_t>(found.bucket);
  }
  const uint64_t each = by_sum ? fixed(__uint_as_float(prefix)) : 1;
  const uint64_t wanted = (goal - found.before + each - 1) / each;
  Cut result{prefix, prefix == cut.weight ? cut.last : INT_MAX};
  if (wanted * each >= found.amount) return result;
  result.last = find_token(w, source, wanted, [&](int token, float logit) {
    return uint64_t{__float_as_uint(weigh(logit)) == prefix && token <= result.last};
  });
  return result;
}

__device__ inline uint64_t sum_of_kept(Workplace& w, Source source, Weigh weigh, Cut cut) {
  uint64_t sum = 0;
  source.for_each(w, [&](int token, float logit) {
    const float weight = weigh(logit);
    if (cut.keeps(__float_as_uint(weight), token)) sum += fixed(weight);
  });
  return block_total(w, sum);
}

/// Neighbouring tokens [begin, end) in segments of equal length, not more than there are buckets.
struct Range {
  const float* logits;
  int begin;
  int end;
  __device__ int segment() const { return (end - begin + 32 * buckets - 1) / (32 * buckets) * 32; }
};

/// Fills the buckets with the sums of the segments; returns the sum of all.
__device__ inline uint64_t sum_segments(Workplace& w, Range range, Weigh weigh, Cut cut) {
  clear_buckets(w);
  const int length = range.segment();
  uint64_t total = 0;
  for (int i = threadIdx.x / 32; range.begin + i * length < range.end; i += finish_threads / 32) {
    uint64_t sum = 0;
    const int first = range.begin + i * length;
    for (int token = first + static_cast<int>(threadIdx.x % 32); token < min(first + length, range.end); token += 32) {
      const float weight = weigh(range.logits[token]);
      if (cut.keeps(__float_as_uint(weight), token)) sum += fixed(weight);
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
    if (threadIdx.x % 32 != 0) continue;
    w.low[i] = static_cast<uint32_t>(sum);
    w.high[i] = static_cast<uint32_t>(sum >> 32);
    total += sum;
  }
  return block_total(w, total);
}

/// The token of the range, whose segments are summed, at which the running sum reaches `goal`.
__device__ inline int find_in_range(Workplace& w, Range range, Weigh weigh, Cut cut, uint64_t goal) {
  const int length = range.segment();
  const Found segment = find_bucket(w, 0, goal, false);
  if (segment.bucket < 0) return -1;
  const int first = range.begin + segment.bucket * length;
  clear_buckets(w);
  const int token = first + static_cast<int>(threadIdx.x);
  if (token < min(first + length, range.end)) {
    const float weight = weigh(range.logits[token]);
    if (cut.keeps(__float_as_uint(weight), token)) add_to_bucket(w, threadIdx.x, fixed(weight));
  }
  return first + find_bucket(w, segment.before, goal, false).bucket;
}

/// The group best that comes `place`th, counted from 1, in falling order.
__device__ inline float best_of_rank(Workplace& w, int groups, int place) {
  __syncthreads();
  for (int g = threadIdx.x; g < groups; g += finish_threads) {
    const float mine = w.bests[g];
    int before = 0;
    for (int other = 0; other < groups; ++other) {
      before += w.bests[other] > mine || (w.bests[other] == mine && other < g) ? 1 : 0;
    }
    if (before == place - 1) w.floor = mine;
  }
  __syncthreads();
  return w.floor;
}

/// Lists the logits from `floor` on, looking only into groups that have any; returns how many, or -1 when they are too
/// many for the list.
__device__ inline int list_from(Workplace& w, const float* logits, int vocab, int groups, float floor) {
  __syncthreads();
  if (threadIdx.x == 0) w.listed = 0;
  __syncthreads();
  const volatile int& listed = w.listed;
  for (int g = threadIdx.x / 32; g < groups && listed <= list_size; g += finish_threads / 32) {
    if (w.bests[g] < floor || w.bests[g] == no_logit) continue;
#pragma unroll
    for (int j = 0; j < group_tokens / 32; ++j) {
      const int token = g * group_tokens + j * 32 + static_cast<int>(threadIdx.x % 32);
      const float logit = token < vocab ? logits[token] : no_logit;
      if (logit < floor || logit == no_logit) continue;
      const int place = atomicAdd(&w.listed, 1);
      if (place < list_size) w.list[place] = {token, logit};
    }
  }
  __syncthreads();
  return listed <= list_size ? listed : -1;
}

}  // namespace quern::cuda
#endif
