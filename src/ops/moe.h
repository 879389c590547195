// moe: routed experts. Tokens are sorted by expert, go through the experts' matrices, and come back weighted.
#pragma once

#include <cstdint>

#include "ops/exec.h"
#include "ops/gated.h"
#include "ops/kernel.h"
#include "ops/linear.h"
#include "tensor/tensor.h"

namespace quern {

/// Where the tokens of a step go. A pair is a token at one of its experts; pairs stand in the order of their experts.
struct Routing {
  Tensor tokens;   // [tokens * used] i32: the token of each pair
  Tensor starts;   // [experts + 1] i32: the first pair of each expert
  Tensor places;   // [tokens, used] i32: the pairs of each token, its best expert first
  Tensor weights;  // [tokens, used] f32
};

/// How a token's experts and their weights follow from its logits.
struct RouterRule {
  enum class Score : uint8_t { softmax, sigmoid };     // softmax is over all experts
  enum class GroupScore : uint8_t { best, best_two };  // of a group: its best expert's, or the sum of its two best

  int used = 0;
  bool renormalize = false;  // weights are made to sum up to one
  Score score = Score::softmax;
  float scale = 1.0F;   // of the weights, at last
  int groups = 1;       // of equally many neighbouring experts; at most 32
  int used_groups = 1;  // experts are chosen from the best groups only
  GroupScore group_score = GroupScore::best;

  bool operator==(const RouterRule&) const = default;
};

/// Numbers of each expert, [experts] f32, or none.
struct RouterNumbers {
  Tensor bias = {};     // added to scores where groups and experts are chosen but not to weights
  Tensor factors = {};  // on weights, after all else
};

/// Every token goes to the `used` experts of largest score (of equals, the first); the scores are the weights.
/// logits: [tokens, experts] f32
Routing route(Exec& exec, Tensor logits, const RouterRule& rule, const RouterNumbers& numbers = {});

/// y[i] = W_e x[i] for every pair i of expert e.   x: [pairs, cols] activations   y: [pairs, rows] activations
/// matrices: one for each expert, all of one size
Tensor expert_linear(Exec& exec, Tensor x, const Matrix* matrices, const Routing& routing);

/// gated() of that, for x of tokens: y[i] = gated(W_e x[tokens[i]]).   x: [tokens, cols] activations
/// y: [pairs, rows / 2] activations   next: what the pairs meet after that, or null; a device may fetch it meanwhile
Tensor expert_gated(Exec& exec, Tensor x, const Matrix* matrices, const Routing& routing, Activation activation,
                    const Matrix* next);

/// y[t] = sum over k of weights[t][k] * x[places[t][k]], k ascending; y[t] += that with `accumulate`.
/// x: [pairs, dim] activations   y: [tokens, dim] f32
void combine(Exec& exec, Tensor y, Tensor x, const Routing& routing, bool accumulate);

namespace kernels {
/// Memory for a while: chosen [tokens, used] i32, the experts of each token; and what they are chosen by,
/// [tokens, experts] f32, or none where that is the logits, which then are chosen by softmax without groups or bias.
inline constinit Kernel<void(const Routing& routing, Tensor chosen, Tensor choice, Tensor logits,
                             const RouterRule& rule, const RouterNumbers& numbers)>
    route{"route"};
inline constinit Kernel<void(Tensor y, Tensor x, const Matrix* matrices, const Routing& routing, std::byte* scratch)>
    expert_linear{"expert_linear"};
/// How much scratch that takes.
inline constinit Kernel<void(const Matrix* matrices, int32_t experts, int32_t pairs, int64_t& bytes)>
    expert_linear_scratch{"expert_linear_scratch"};
inline constinit Kernel<void(Tensor y, Tensor x, const Matrix* matrices, const Routing& routing, Activation activation,
                             const Matrix* next, std::byte* scratch)>
    expert_gated{"expert_gated"};
/// How much scratch that takes.
inline constinit Kernel<void(Tensor x, const Matrix* matrices, const Routing& routing, int64_t& bytes)>
    expert_gated_scratch{"expert_gated_scratch"};
inline constinit Kernel<void(Tensor y, Tensor x, const Routing& routing, bool accumulate)> combine{"combine"};
}  // namespace kernels

}  // namespace quern
