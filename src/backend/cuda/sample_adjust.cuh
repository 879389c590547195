// A row's logits after masks, bans, biases and penalties, as a copy. One block for a row.
#pragma once

#include "backend/cuda/sample_cut.cuh"

#ifdef __CUDACC__
namespace quern::cuda {

/// The words of the mask come over the bus, 32 at a time.
__device__ inline void copy_allowed(float* to, const float* logits, int vocab, std::span<const uint32_t> allowed) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int words = (vocab + 31) / 32;
  for (int first = static_cast<int>(threadIdx.x / 32) * 32; first < words; first += finish_threads) {
    uint32_t word = ~0U;
    if (!allowed.empty()) word = first + lane < words ? allowed[static_cast<size_t>(first + lane)] : 0;
#pragma unroll 8
    for (int i = 0; i < 32; ++i) {
      const int token = (first + i) * 32 + lane;
      const uint32_t bits = __shfl_sync(0xFFFFFFFFU, word, i);
      if (token < vocab) to[token] = (bits >> lane & 1U) != 0 ? logits[token] : no_logit;
    }
  }
}

/// A token may come more than once; its first entry of a piece adds them all, in their order.
__device__ inline void add_biases(Workplace& w, float* to, int vocab,
                                  std::span<const std::pair<int32_t, float>> biases) {
  const int count = static_cast<int>(biases.size());
  const int mine = static_cast<int>(threadIdx.x);
  for (int first = 0; first < count; first += finish_threads) {
    const int piece = min(count - first, finish_threads);
    __syncthreads();
    if (mine < piece) {
      const std::pair<int32_t, float>& bias = biases[static_cast<size_t>(first + mine)];
      w.list[mine] = {bias.first, bias.second};
    }
    __syncthreads();
    if (mine >= piece) continue;
    const int token = w.list[mine].token;
    bool is_first = token >= 0 && token < vocab;
    for (int i = 0; i < mine && is_first; ++i) is_first = w.list[i].token != token;
    if (!is_first) continue;
    float logit = to[token];
    for (int i = mine; i < piece; ++i) {
      if (w.list[i].token == token) logit += w.list[i].logit;
    }
    to[token] = logit;
  }
  __syncthreads();
}

__device__ inline float penalized(float logit, const SampleRow& row, int outputs) {
  logit = logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
  if (outputs == 0) return logit;
  logit -= static_cast<float>(outputs) * row.frequency_penalty;
  return logit - row.presence_penalty;
}

/// Ids outside the vocabulary are passed over.
__device__ inline void adjust(Workplace& w, float* to, const float* logits, int vocab, const SampleRow& row) {
  copy_allowed(to, logits, vocab, row.allowed);
  __syncthreads();
  for (size_t i = threadIdx.x; i < row.banned.size(); i += finish_threads) {
    const int token = row.banned[i];
    if (token >= 0 && token < vocab) to[token] = no_logit;
  }
  add_biases(w, to, vocab, row.biases);
  for (size_t i = threadIdx.x; i < row.counts.size(); i += finish_threads) {
    const TokenCount entry = row.counts[i];
    if (entry.token >= 0 && entry.token < vocab) to[entry.token] = penalized(to[entry.token], row, entry.outputs);
  }
  __syncthreads();
}

/// The best logit of every group goes to the workplace; returns the key of the best of all.
__device__ inline uint64_t find_bests(Workplace& w, const float* logits, int vocab, int groups) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  uint64_t best = 0;
  __syncthreads();
  for (int g = static_cast<int>(threadIdx.x / 32); g < groups; g += finish_threads / 32) {
    float largest = no_logit;
#pragma unroll
    for (int j = 0; j < group_tokens / 32; ++j) {
      const int token = g * group_tokens + j * 32 + lane;
      const float logit = token < vocab ? logits[token] : no_logit;
      const uint64_t key = logit == no_logit ? 0 : order_key(logit, token);
      best = key > best ? key : best;
      largest = fmaxf(largest, logit);
    }
    largest = warp_max(largest);
    if (lane == 0) w.bests[g] = largest;
  }
  best = warp_max(best);
  if (lane == 0) w.totals[threadIdx.x / 32] = best;
  __syncthreads();
  for (int warp = 0; warp < finish_threads / 32; ++warp) best = w.totals[warp] > best ? w.totals[warp] : best;
  __syncthreads();
  return best;
}

}  // namespace quern::cuda
#endif
