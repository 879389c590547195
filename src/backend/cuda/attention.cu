#include "ops/attention.h"

#include <limits>

#include "backend/cuda/attention_plain.h"
#include "backend/cuda/attention_split.cuh"
#include "backend/cuda/attention_widen.h"
#include "backend/cuda/blas.h"

namespace quern::cuda {
namespace {

constexpr int max_dims = 256;
constexpr int64_t max_split_slots = 4096;
constexpr int few_tokens = 8;

/// Whether matrix units compute this: 16-bit floats in panels, and 8-bit floats in whole pieces of 16 bytes.
bool on_matrix_units(const Tensor& q, const PagedKv& kv) {
  if (kv.latent_dim > 0) return false;
  const bool stored = in_panels(kv.dtype, kv.head_dim) || (kv.dtype == Dtype::f8 && kv.head_dim % 16 == 0);
  return q.dtype != Dtype::f32 && stored && kv.head_dim <= max_dims;
}
/// What they multiply.
Dtype multiplied(const PagedKv& kv) { return kv.dtype == Dtype::f8 ? Dtype::f16 : kv.dtype; }

int rounded_dims(int head_dim) { return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : max_dims; }

template <int dims>
int residents(bool invariant) {
  return invariant ? SplitShape<dims, true>::residents : SplitShape<dims, false>::residents;
}

/// Few tokens leave room for blocks of the next kernel.
int blocks_of(const Queue& queue, int tokens, int dims) {
  const bool invariant = queue.batch_invariant;
  if (tokens <= few_tokens) return std::min(max_arrivals, native(queue).multiprocessors);
  const int each = dims == 64    ? residents<64>(invariant)
                   : dims == 128 ? residents<128>(invariant)
                                 : residents<256>(invariant);
  return std::min(max_arrivals, each * native(queue).multiprocessors);
}

/// Partial sums that can be at one time: of two lanes in each block; or in the batch-invariant mode of all splits, as
/// long as these are not too many.
int64_t slots_of(const Queue& queue, const Tensor& q, const PagedKv& kv, const Segments& segments, int heads) {
  if (!queue.batch_invariant) return int64_t{2} * blocks_of(queue, q.dims[0], rounded_dims(kv.head_dim));
  const int64_t rows = int64_t{q.dims[0]} * (heads / kv.heads);
  const int64_t lanes = kv.heads * (rows / tile_rows + segments.rows.dims[0]);
  const int64_t quantum = plan_warps * split_keys;
  const int64_t quanta = (int64_t{kv.table.dims[1]} * kv.page_tokens + quantum - 1) / quantum;
  return std::min(max_split_slots, lanes * quanta * plan_warps);
}

/// Whether queries can be copied in chunks.
bool aligned_queries(const Tensor& q) {
  return reinterpret_cast<uintptr_t>(q.data) % 16 == 0 && q.strides[0] % chunk_dims == 0;
}

/// Whether some segment may be a prompt.
bool has_prompts(const Tensor& q, const PagedKv& kv, const Segments& segments, int heads) {
  return q.dims[0] != segments.rows.dims[0] && q.dims[0] * (heads / kv.heads) > max_short_rows;
}

/// Whether warpgroup instructions do prompts of this kind, where queries are aligned.
bool on_warpgroups(const Queue& queue, const PagedKv& kv, const AttentionParams& params) {
  static const bool run = runs_warpgroups();
  return run && !queue.batch_invariant && !params.sinks &&
         (kv.head_dim == 64 || kv.head_dim == 128 || kv.head_dim == 256);
}

/// Bytes of partial sums.
int64_t sums_bytes(const Queue& queue, const Tensor& q, const PagedKv& kv, const Segments& segments,
                   const AttentionParams& params) {
  const int64_t slot = tile_rows * (rounded_dims(kv.head_dim) + 2) * sizeof(float);
  int64_t bytes = slots_of(queue, q, kv, segments, params.heads) * slot;
  if (has_prompts(q, kv, segments, params.heads) && on_warpgroups(queue, kv, params)) {
    bytes = std::max(bytes, prompt_scratch_bytes(queue, kv.head_dim));
  }
  return (bytes + 127) / 128 * 128;
}

/// Whether prompts' pages are widened before they are read.
bool widens(const Queue& queue, const Tensor& q, const PagedKv& kv, const Segments& segments,
            const AttentionParams& params) {
  return kv.dtype == Dtype::f8 && has_prompts(q, kv, segments, params.heads) && on_warpgroups(queue, kv, params);
}

void attention_scratch(Queue queue, Tensor q, const PagedKv& kv, const Segments& segments,
                       const AttentionParams& params, int64_t& bytes) {
  bytes = 0;
  if (!on_matrix_units(q, kv)) return;
  bytes = sums_bytes(queue, q, kv, segments, params);
  if (widens(queue, q, kv, segments, params)) bytes += widened_bytes(kv, segments);
}

void launch_prompts(Queue queue, const SplitCall& split, Dtype pages) {
  switch (pages) {
    case Dtype::f8: return launch_prompts_f8(queue, split);
    case Dtype::f16: return launch_prompts_f16(queue, split);
    default: return launch_prompts_bf16(queue, split);
  }
}
void launch_rows(Queue queue, const SplitCall& split, Dtype pages, int dims) {
  switch (pages) {
    case Dtype::f8: return launch_rows_f8(queue, split, dims);
    case Dtype::f16: return launch_rows_f16(queue, split, dims);
    default: return launch_rows_bf16(queue, split, dims);
  }
}
void launch_split(Queue queue, const SplitCall& split, Dtype pages, int dims) {
  switch (pages) {
    case Dtype::f8: return launch_split_f8(queue, split, dims);
    case Dtype::f16: return launch_split_f16(queue, split, dims);
    default: return launch_split_bf16(queue, split, dims);
  }
}

void attention(Queue queue, Tensor out, Tensor q, const PagedKv& kv, const Segments& segments,
               const AttentionParams& params, std::byte* scratch) {
  if (q.dims[0] == 0) return;
  if (!on_matrix_units(q, kv)) return plain_attention(queue, out, q, kv, segments, params);
  const int dims = rounded_dims(kv.head_dim);
  const bool aligned = aligned_queries(q);
  const bool direct = aligned && q.dtype == multiplied(kv);
  const bool prompts = has_prompts(q, kv, segments, params.heads);
  SplitCall split{.call = AttentionCall(out, q, kv, segments, params),
                  .partials = reinterpret_cast<float*>(scratch),
                  .slots = slots_of(queue, q, kv, segments, params.heads),
                  .arrivals = native(queue).arrivals,
                  .blocks = blocks_of(queue, q.dims[0], dims),
                  .short_rows = prompts ? max_short_rows : std::numeric_limits<int>::max(),
                  .early = q.dims[0] == segments.rows.dims[0],
                  .aligned_queries = aligned,
                  .direct_queries = direct};
  if (widens(queue, q, kv, segments, params)) {
    split.widened = reinterpret_cast<int*>(scratch + sums_bytes(queue, q, kv, segments, params));
    split.widened_capacity = widened_capacity(kv, segments);
  }
  if (prompts && (direct || (kv.dtype == Dtype::f8 && aligned)) && on_warpgroups(queue, kv, params)) {
    launch_prompts(queue, split, kv.dtype);
  } else if (prompts) {
    launch_rows(queue, split, kv.dtype, dims);
  }
  if (prompts && segments.rows.dims[0] == 1) return;
  launch_split(queue, split, kv.dtype, dims);
}

const bool added = kernels::attention.add(DeviceKind::cuda, attention) &&
                   kernels::attention_scratch.add(DeviceKind::cuda, attention_scratch);

}  // namespace
}  // namespace quern::cuda
