// The parts of attention on matrix units that its files share.
#pragma once

#include "backend/cuda/attention_pages.cuh"

namespace quern::cuda {

/// Keys whose sums are made from nothing in the batch-invariant mode, and merged in ascending order.
inline constexpr int split_keys = 128;

/// A call and the memory for partial sums.
struct SplitCall {
  AttentionCall call;
  float* partials;  // [slots, 16 rows, dims + 2]
  int64_t slots;
  unsigned* arrivals;  // [blocks], zero before and after
  int blocks;
  bool direct_queries;  // of the pages' type, and rows aligned to 16 bytes
};

/// `dims`: 64, 128 or 256, at least the head size.
void launch_split_f16(Queue queue, const SplitCall& split, int dims);
void launch_split_bf16(Queue queue, const SplitCall& split, int dims);

}  // namespace quern::cuda
