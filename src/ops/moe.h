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

/// Every token goes to the `used` experts of largest softmax over all (of equals, the first); these are the weights,
/// made to sum up to one with `renormalize`.   logits: [tokens, experts] f32
Routing route(Exec& exec, Tensor logits, int used, bool renormalize);

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
/// chosen: [tokens, used] i32, memory for the experts of each token meanwhile.
inline constinit Kernel<void(const Routing& routing, Tensor chosen, Tensor logits, bool renormalize)> route{"route"};
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
