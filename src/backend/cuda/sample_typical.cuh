// Typical sampling: which tokens of a row are about as surprising as its tokens are on average. One block for a row.
#pragma once

#include "backend/cuda/sample_cut.cuh"

#ifdef __CUDACC__
namespace quern::cuda {

/// The surprise of a weight is minus its logarithm. A key falls from 1 with the distance from the mean surprise.
struct TypicalKey {
  Weigh weigh;
  float mean;
  __device__ __forceinline__ float surprise(float logit) const {
    return (weigh.maximum - logit) * weigh.inverse_temperature;
  }
  __device__ __forceinline__ uint32_t operator()(float logit) const {
    return __float_as_uint(expf(-fabsf(surprise(logit) - mean)));
  }
};

/// Of what `cut` keeps, in the order of falling keys, the fewest whose sum reaches `goal`: the last one's key.
__device__ inline uint32_t find_least_key(Workplace& w, Source source, TypicalKey key, Cut cut, uint64_t goal) {
  Found found;
  uint32_t prefix = 0;
  for (int shift = 2 * digit_bits; shift >= 0; shift -= digit_bits) {
    clear_buckets(w);
    source.for_each(w, [&](int token, float logit) {
      const float weight = key.weigh(logit);
      if (!cut.keeps(__float_as_uint(weight), token)) return;
      const uint32_t bits = key(logit);
      if (bits >> shift >> digit_bits == prefix) add_to_bucket(w, (bits >> shift) % buckets, fixed(weight));
    });
    found = find_bucket(w, found.before, goal, true);
    if (found.bucket < 0) return 0;
    prefix = prefix << digit_bits | static_cast<uint32_t>(found.bucket);
  }
  return prefix;
}

/// Takes away the logits that min_p, top_k and typical_p do not keep. `best` is the largest.
__device__ inline void cut_untypical(Workplace& w, float* logits, int vocab, const SampleRow& row, float best) {
  const Source source{logits, vocab, -1};
  TypicalKey key{{best, 1.0F / row.temperature}, 0.0F};
  Cut cut;
  if (row.min_p > 0.0F) cut.weight = __float_as_uint(fminf(row.min_p, 1.0F));
  if (row.top_k > 0 && row.top_k < vocab) {
    cut = find_cut(w, source, key.weigh, cut, static_cast<uint64_t>(row.top_k), false);
  }
  const uint64_t total = sum_of_kept(w, source, key.weigh, cut);
  uint64_t surprise = 0;  // of each token at most 1/e
  source.for_each(w, [&](int token, float logit) {
    const float weight = key.weigh(logit);
    if (cut.keeps(__float_as_uint(weight), token)) surprise += fixed(weight * key.surprise(logit));
  });
  key.mean = static_cast<float>(static_cast<double>(block_total(w, surprise)) / static_cast<double>(total));
  const double goal = ceil(static_cast<double>(fmaxf(row.typical_p, 1e-6F)) * static_cast<double>(total));
  const uint32_t least = find_least_key(w, source, key, cut, static_cast<uint64_t>(goal));
  __syncthreads();
  for (int token = threadIdx.x; token < vocab; token += finish_threads) {
    const float logit = logits[token];
    if (!cut.keeps(__float_as_uint(key.weigh(logit)), token) || key(logit) < least) logits[token] = no_logit;
  }
  __syncthreads();
}

}  // namespace quern::cuda
#endif
