// The parts of attention on matrix units that its files share.
#pragma once

#include "backend/cuda/attention_pages.cuh"

namespace quern::cuda {

/// Keys whose sums are made from nothing in the batch-invariant mode, and merged in ascending order.
inline constexpr int split_keys = 128;

/// Segments of more query rows for each kv head are prompts.
inline constexpr int max_short_rows = 64;

/// A call and the memory for partial sums.
struct SplitCall {
  AttentionCall call;
  float* partials;  // [slots, 16 rows, dims + 2]
  int64_t slots;
  unsigned* arrivals;  // [blocks], zero before and after
  int blocks;
  int short_rows;          // segments with more query rows than this are left to a kernel for prompts
  bool early;              // old keys may be read while the kernels in front still run: steps of one token per segment
  bool aligned_queries;    // to 16 bytes
  bool direct_queries;     // and of the type that the matrix units multiply
  int* widened = nullptr;  // what widen_prompts() writes
  int widened_capacity = 0;  // pages
};

/// `dims`: 64, 128 or 256, at least the head size.
void launch_split_f16(Queue queue, const SplitCall& split, int dims);
void launch_split_bf16(Queue queue, const SplitCall& split, int dims);
/// Keys and values of 8-bit floats.
void launch_split_f8(Queue queue, const SplitCall& split, int dims);
/// The segments that are prompts.
void launch_rows_f16(Queue queue, const SplitCall& split, int dims);
void launch_rows_bf16(Queue queue, const SplitCall& split, int dims);
void launch_rows_f8(Queue queue, const SplitCall& split, int dims);
/// The same, faster and not batch invariant; head sizes 64, 128 or 256, on sm_90a. Query rows are aligned to 16 bytes,
/// and direct but for 8-bit floats.
int64_t prompt_scratch_bytes(const Queue& queue, int head_dim);
void launch_prompts_f16(Queue queue, const SplitCall& split);
void launch_prompts_bf16(Queue queue, const SplitCall& split);
void launch_prompts_f8(Queue queue, const SplitCall& split);

}  // namespace quern::cuda
