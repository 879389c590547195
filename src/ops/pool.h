// mean_pool: one vector for each sequence, the mean of its tokens or what else is made of all of them.
#pragma once

#include <cstdint>

#include "ops/attention.h"
#include "ops/exec.h"
#include "ops/kernel.h"
#include "tensor/tensor.h"

namespace quern {

enum class TokenPool : uint8_t {
  mean,
  largest,        // in each column
  weighted_mean,  // the token at position p counts p + 1 times
  mean_sqrt_len,  // the sum by the root of the number of tokens
};

/// y[s] = mean (or another `kind`) of the tokens of segment s's sequence, up to the segment's last one. Tokens are
/// added one by one in the order of their positions, to what `sums` holds of the same row's earlier steps; a segment
/// that begins at position 0 begins anew. How a sequence is cut into steps changes no bit. x: [tokens, dim] activations
/// sums: [rows, dim] f32   y: [segments, dim] of any float type
void mean_pool_into(Exec& exec, Tensor y, Tensor sums, Tensor x, const Segments& segments,
                    TokenPool kind = TokenPool::mean);

namespace kernels {
inline constinit Kernel<void(Tensor y, Tensor sums, Tensor x, const Segments& segments, TokenPool kind)> mean_pool{
    "mean_pool"};
}  // namespace kernels

}  // namespace quern
