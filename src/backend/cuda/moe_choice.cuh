// How a warp chooses the experts of a token.
#pragma once

#include <climits>

#include "ops/moe.h"

namespace quern::cuda {

/// What a pass over a token's experts found: the best that comes after the last in the order of (logit descending,
/// number ascending).
__device__ __forceinline__ int next_best(const float* logits, int experts, int last) {
  const float limit = last < 0 ? 0.0F : logits[last];
  float best = -INFINITY;
  int at = INT_MAX;
  for (int e = threadIdx.x % 32; e < experts; e += 32) {
    const float logit = logits[e];
    const bool is_after = last < 0 || logit < limit || (logit == limit && e > last);
    if (is_after && (logit > best || (logit == best && e < at))) {
      best = logit;
      at = e;
    }
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(0xFFFFFFFFU, best, step);
    const int other_at = __shfl_xor_sync(0xFFFFFFFFU, at, step);
    if (other > best || (other == best && other_at < at)) {
      best = other;
      at = other_at;
    }
  }
  // A logit that is no number has no order: the row's result is none either.
  return at == INT_MAX ? 0 : at;
}

/// The experts of every token and their weights, where they are chosen by scores.   choice: memory, [tokens, experts]
void choose_by_scores(Queue queue, Tensor chosen, Tensor weights, Tensor choice, Tensor logits, const RouterRule& rule,
                      const RouterNumbers& numbers);

}  // namespace quern::cuda
