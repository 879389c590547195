// Where the tokens of a step go, and how the results of their experts come together.
#include "ops/moe.h"

#include <climits>

#include "backend/cuda/launch.h"
#include "backend/cuda/moe_choice.cuh"
#include "backend/cuda/vectors.h"

namespace quern::cuda {
namespace {

constexpr int choose_warps = 4;
constexpr int place_threads = 1024;
constexpr int combine_threads = 128;
constexpr int few_pairs = 512;

/// What a routing is made of.
struct Places {
  int* tokens;
  int* starts;
  int* places;
};

struct Choice {
  int tokens;
  int experts;
  int used;
  bool renormalize;
  float scale;
  const float* factors;  // of the experts, or null
};

/// Up to 256 experts of a token in the registers of a warp, as keys that ascend with logits; 0: none or taken.
struct Candidates {
  uint32_t keys[8];

  __device__ __forceinline__ Candidates(const float* logits, int experts) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int e = static_cast<int>(threadIdx.x % 32) + 32 * j;
      const uint32_t bits = e < experts ? __float_as_uint(logits[e] + 0.0F) : 0xFFFFFFFFU;
      keys[j] = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
    }
  }

  /// Takes the best one, of equals the first.
  __device__ __forceinline__ int take(float& logit) {
    uint32_t best = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) best = max(best, keys[j]);
    best = __reduce_max_sync(0xFFFFFFFFU, best);
    unsigned first = UINT_MAX;
#pragma unroll
    for (int j = 7; j >= 0; --j) {
      if (keys[j] == best) first = threadIdx.x % 32 + 32 * j;
    }
    first = __reduce_min_sync(0xFFFFFFFFU, first);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (first == threadIdx.x % 32 + 32 * j) keys[j] = 0;
    }
    logit = __uint_as_float((best & 0x80000000U) != 0 ? best ^ 0x80000000U : ~best);
    return static_cast<int>(first);
  }
};

/// The best experts of a token and their weights. For whole warps.
__device__ __forceinline__ void choose_of_token(int* chosen, float* weights, const float* logits,
                                                const Choice& choice) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float largest = 0.0F;
  float sum = 0.0F;
  int last = -1;
  const bool in_registers = choice.experts <= 256;
  Candidates candidates(logits, in_registers ? choice.experts : 0);
  for (int k = 0; k < choice.used; ++k) {
    float logit = 0.0F;
    if (in_registers) {
      last = candidates.take(logit);
    } else {
      last = next_best(logits, choice.experts, last);
      logit = logits[last];
    }
    if (k == 0) largest = logit;
    const float weight = expf(logit - largest);
    sum += weight;
    if (lane == 0) {
      chosen[k] = last;
      weights[k] = weight;
    }
  }
  if (!choice.renormalize) {
    sum = 0.0F;
    for (int e = lane; e < choice.experts; e += 32) sum += expf(logits[e] - largest);
    sum = warp_sum(sum);
  }
  __syncwarp();
  for (int k = lane; k < choice.used; k += 32) {
    const float factor = choice.factors == nullptr ? choice.scale : choice.scale * choice.factors[chosen[k]];
    weights[k] = weights[k] / sum * factor;
  }
}

/// A warp for each token.
__global__ void __launch_bounds__(32 * choose_warps)
    choose(int* chosen, float* weights, const float* logits, int64_t stride, Choice choice) {
  allow_next();
  const int token = static_cast<int>(blockIdx.x * choose_warps + threadIdx.x / 32);
  wait_for_previous();
  if (token >= choice.tokens) return;
  const int64_t first = int64_t{token} * choice.used;
  choose_of_token(chosen + first, weights + first, logits + token * stride, choice);
}

/// All of the routing in one block, for few pairs: each finds its place by looking at all others.
__global__ void __launch_bounds__(place_threads)
    route_few(Places to, float* weights, const float* logits, int64_t stride, Choice choice) {
  allow_next();
  __shared__ int chosen[few_pairs];
  wait_for_previous();
  for (int token = threadIdx.x / 32; token < choice.tokens; token += place_threads / 32) {
    const int first = token * choice.used;
    choose_of_token(chosen + first, weights + first, logits + token * stride, choice);
  }
  __syncthreads();
  const int pairs = choice.tokens * choice.used;
  for (int expert = threadIdx.x; expert <= choice.experts; expert += place_threads) {
    int smaller = 0;
    for (int i = 0; i < pairs; ++i) smaller += chosen[i] < expert ? 1 : 0;
    to.starts[expert] = smaller;
  }
  for (int i = threadIdx.x; i < pairs; i += place_threads) {
    const int mine = chosen[i];
    int before = 0;
    for (int other = 0; other < pairs; ++other) {
      before += chosen[other] < mine || (chosen[other] == mine && other < i) ? 1 : 0;
    }
    to.places[i] = before;
    to.tokens[before] = i / choice.used;
  }
}

/// Sums over the block of a small number from each thread: of the threads before this one, and of all.
struct Prefix {
  int before;
  int all;
};
__device__ Prefix block_prefix(int count) {
  __shared__ int totals[place_threads / 32];
  const int lane = static_cast<int>(threadIdx.x % 32);
  int running = count;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xFFFFFFFFU, running, step);
    if (lane >= step) running += other;
  }
  __syncthreads();
  if (lane == 31) totals[threadIdx.x / 32] = running;
  __syncthreads();
  const int mine = totals[lane];
  const int all = static_cast<int>(__reduce_add_sync(0xFFFFFFFFU, static_cast<unsigned>(mine)));
  const int earlier = lane < static_cast<int>(threadIdx.x / 32) ? mine : 0;
  const int before = static_cast<int>(__reduce_add_sync(0xFFFFFFFFU, static_cast<unsigned>(earlier)));
  return {before + running - count, all};
}

/// A block for each expert numbers its pairs, in the order of tokens.
__global__ void __launch_bounds__(place_threads) place(Places to, const int* chosen, int pairs, int used) {
  allow_next();
  const int expert = static_cast<int>(blockIdx.x);
  wait_for_previous();
  int smaller = 0;
  for (int i = threadIdx.x; i < pairs; i += place_threads) smaller += chosen[i] < expert ? 1 : 0;
  int pair = block_prefix(smaller).all;
  if (threadIdx.x == 0) {
    to.starts[expert] = pair;
    if (expert == 0) to.starts[gridDim.x] = pairs;
  }
  constexpr int each = 4;  // neighbours of a thread
  for (int first = 0; first < pairs; first += place_threads * each) {
    const int mine = first + static_cast<int>(threadIdx.x) * each;
    bool is_mine[each];
    int count = 0;
#pragma unroll
    for (int i = 0; i < each; ++i) {
      is_mine[i] = mine + i < pairs && chosen[mine + i] == expert;
      count += is_mine[i] ? 1 : 0;
    }
    const Prefix prefix = block_prefix(count);
    int at = pair + prefix.before;
    pair += prefix.all;
#pragma unroll
    for (int i = 0; i < each; ++i) {
      if (!is_mine[i]) continue;
      to.tokens[at] = (mine + i) / used;
      to.places[mine + i] = at++;
    }
  }
}

void route(Queue queue, const Routing& routing, Tensor chosen, Tensor by_scores, Tensor logits, const RouterRule& rule,
           const RouterNumbers& numbers) {
  const Choice choice{logits.dims[0],   logits.dims[1], rule.used,
                      rule.renormalize, rule.scale,     numbers.factors ? numbers.factors.as<float>() : nullptr};
  const Places to{routing.tokens.as<int>(), routing.starts.as<int>(), routing.places.as<int>()};
  auto* const weights = routing.weights.as<float>();
  const int pairs = choice.tokens * choice.used;
  if (by_scores) {
    choose_by_scores(queue, chosen, routing.weights, by_scores, logits, rule, numbers);
  } else if (pairs <= few_pairs) {
    return launch(queue, route_few, 1, place_threads, 0, to, weights, logits.as<float>(), logits.strides[0], choice);
  } else {
    launch(queue, choose, static_cast<unsigned>((choice.tokens + choose_warps - 1) / choose_warps), 32 * choose_warps,
           0, chosen.as<int>(), weights, logits.as<float>(), logits.strides[0], choice);
  }
  launch(queue, place, static_cast<unsigned>(choice.experts), place_threads, 0, to, chosen.as<int>(), pairs,
         choice.used);
}

struct Sums {
  int dim;
  int used;
  int pieces;  // blocks for each token
  int64_t x_stride, y_stride;
  bool accumulate;
};

template <int width, typename T>
__global__ void __launch_bounds__(combine_threads)
    add_weighted(float* y, const T* x, const int* places, const float* weights, Sums sums) {
  allow_next();
  const int64_t token = blockIdx.x / sums.pieces;
  const int first = static_cast<int>(blockIdx.x % sums.pieces * combine_threads + threadIdx.x) * width;
  places += token * sums.used;
  weights += token * sums.used;
  y += token * sums.y_stride + first;
  wait_for_previous();
  if (first >= sums.dim) return;
  float total[width] = {};
  for (int k = 0; k < sums.used; ++k) {
    float values[width];
    load_floats(values, x + places[k] * sums.x_stride + first);
    const float weight = weights[k];
#pragma unroll
    for (int i = 0; i < width; ++i) total[i] = fmaf(weight, values[i], total[i]);
  }
  if (sums.accumulate) {
    float before[width];
    load_floats(before, y);
#pragma unroll
    for (int i = 0; i < width; ++i) total[i] += before[i];
  }
  store_floats(y, total);
}

void combine(Queue queue, Tensor y, Tensor x, const Routing& routing, bool accumulate) {
  visit_activation(x.dtype, [&]<typename T>(T) {
    constexpr int wide = vector_of<T>;
    const int width = y.dims[1] % wide == 0 && aligned_rows({y, x}) ? wide : 1;
    const int pieces = (y.dims[1] + combine_threads * width - 1) / (combine_threads * width);
    const Sums sums{y.dims[1], routing.places.dims[1], pieces, x.strides[0], y.strides[0], accumulate};
    launch(queue, width == 1 ? add_weighted<1, T> : add_weighted<wide, T>, static_cast<unsigned>(y.dims[0] * pieces),
           combine_threads, 0, y.as<float>(), x.as<T>(), routing.places.as<int>(), routing.weights.as<float>(), sums);
  });
}

const bool route_added = kernels::route.add(DeviceKind::cuda, route);
const bool combine_added = kernels::combine.add(DeviceKind::cuda, combine);

}  // namespace
}  // namespace quern::cuda
