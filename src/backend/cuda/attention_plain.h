#pragma once

#include "ops/attention.h"

namespace quern::cuda {

/// Attention of any types and head size.
void plain_attention(Queue queue, Tensor out, Tensor q, const PagedKv& kv, const Segments& segments,
                     const AttentionParams& params);

}  // namespace quern::cuda
