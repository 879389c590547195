// The choice of experts by scores: sigmoid or softmax, with a bias and groups. Plain: the reference on the GPU.
#include "backend/cuda/launch.h"
#include "backend/cuda/moe_choice.cuh"
#include "backend/cuda/vectors.h"

namespace quern::cuda {
namespace {

constexpr int warps = 4;
constexpr unsigned all = 0xFFFFFFFFU;

struct Scoring {
  RouterRule rule;
  int tokens;
  int experts;
};

/// What turns the logits of a token into scores; the same in all lanes.
struct Scores {
  bool sigmoid;
  float largest = 0.0F;
  float sum = 1.0F;

  __device__ Scores(const float* logits, const Scoring& scoring)
      : sigmoid(scoring.rule.score == RouterRule::Score::sigmoid) {
    if (sigmoid) return;
    const int lane = static_cast<int>(threadIdx.x % 32);
    largest = -INFINITY;
    for (int e = lane; e < scoring.experts; e += 32) largest = fmaxf(largest, logits[e]);
    largest = warp_max(largest);
    sum = 0.0F;
    for (int e = lane; e < scoring.experts; e += 32) sum += expf(logits[e] - largest);
    sum = warp_sum(sum);
  }
  __device__ float operator()(float logit) const {
    return sigmoid ? 1.0F / (1.0F + expf(-logit)) : expf(logit - largest) / sum;
  }
};

/// Experts of all but the best groups can no longer be chosen. A lane for each group.
__device__ void keep_best_groups(float* choice, const Scoring& scoring) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const RouterRule& rule = scoring.rule;
  const int size = scoring.experts / rule.groups;
  const bool is_group = lane < rule.groups;
  float first = -INFINITY;
  float second = -INFINITY;
  for (int i = 0; is_group && i < size; ++i) {
    const float mine = choice[lane * size + i];
    second = fmaxf(second, fminf(first, mine));
    first = fmaxf(first, mine);
  }
  const float of_group = rule.group_score == RouterRule::GroupScore::best ? first : first + second;
  bool kept = false;
  for (int n = 0; n < rule.used_groups; ++n) {
    float best = is_group && !kept ? of_group : -INFINITY;
    int at = is_group && !kept ? lane : 32;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      const float other = __shfl_xor_sync(all, best, step);
      const int other_at = __shfl_xor_sync(all, at, step);
      if (other_at < 32 && (at == 32 || other > best || (other == best && other_at < at))) {
        best = other;
        at = other_at;
      }
    }
    kept = kept || lane == at;
  }
  for (int i = 0; is_group && !kept && i < size; ++i) choice[lane * size + i] = -INFINITY;
}

/// A warp for each token.
__global__ void __launch_bounds__(32 * warps)
    choose(int* chosen, float* weights, float* choice, const float* logits, int64_t stride, const float* bias,
           const float* factors, Scoring scoring) {
  allow_next();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t token = int64_t{blockIdx.x} * warps + threadIdx.x / 32;
  wait_for_previous();
  if (token >= scoring.tokens) return;
  const RouterRule& rule = scoring.rule;
  chosen += token * rule.used;
  weights += token * rule.used;
  choice += token * scoring.experts;
  logits += token * stride;
  const Scores score(logits, scoring);
  for (int e = lane; e < scoring.experts; e += 32) choice[e] = score(logits[e]) + (bias != nullptr ? bias[e] : 0.0F);
  __syncwarp();
  if (rule.used_groups < rule.groups) keep_best_groups(choice, scoring);
  __syncwarp();
  int last = -1;
  float total = 1e-20F;  // scores may all be zero
  for (int k = 0; k < rule.used; ++k) {
    last = next_best(choice, scoring.experts, last);
    const float weight = score(logits[last]);
    total += weight;
    if (lane == 0) {
      chosen[k] = last;
      weights[k] = weight;
    }
  }
  __syncwarp();
  const float factor = rule.renormalize ? rule.scale / total : rule.scale;
  for (int k = lane; k < rule.used; k += 32) weights[k] *= factors == nullptr ? factor : factor * factors[chosen[k]];
}

}  // namespace

void choose_by_scores(Queue queue, Tensor chosen, Tensor weights, Tensor choice, Tensor logits, const RouterRule& rule,
                      const RouterNumbers& numbers) {
  const Scoring scoring{rule, logits.dims[0], logits.dims[1]};
  launch(queue, choose, static_cast<unsigned>((scoring.tokens + warps - 1) / warps), 32 * warps, 0, chosen.as<int>(),
         weights.as<float>(), choice.as<float>(), logits.as<float>(), logits.strides[0],
         numbers.bias ? numbers.bias.as<float>() : nullptr, numbers.factors ? numbers.factors.as<float>() : nullptr,
         scoring);
}

}  // namespace quern::cuda
