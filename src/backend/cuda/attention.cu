#include "ops/attention.h"

#include "backend/cuda/attention_plain.h"
#include "backend/cuda/attention_split.cuh"

namespace quern::cuda {
namespace {

constexpr int max_dims = 256;
constexpr int64_t max_split_slots = 4096;

/// Whether matrix units compute this: 16-bit floats in panels.
bool on_matrix_units(const Tensor& q, const PagedKv& kv) {
  return q.dtype != Dtype::f32 && in_panels(kv.dtype, kv.head_dim) && kv.head_dim <= max_dims;
}

int rounded_dims(int head_dim) { return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : max_dims; }

template <int dims>
int residents(bool invariant) {
  return invariant ? SplitShape<dims, true>::residents : SplitShape<dims, false>::residents;
}

int blocks_of(const Queue& queue, int dims) {
  const bool invariant = queue.batch_invariant;
  const int each = dims == 64    ? residents<64>(invariant)
                   : dims == 128 ? residents<128>(invariant)
                                 : residents<256>(invariant);
  return std::min(max_arrivals, each * native(queue).multiprocessors);
}

/// Partial sums that can be at one time: of two lanes in each block; or in the batch-invariant mode of all splits, as
/// long as these are not too many.
int64_t slots_of(const Queue& queue, const Tensor& q, const PagedKv& kv, const Segments& segments, int heads) {
  if (!queue.batch_invariant) return int64_t{2} * blocks_of(queue, rounded_dims(kv.head_dim));
  const int64_t rows = int64_t{q.dims[0]} * (heads / kv.heads);
  const int64_t lanes = kv.heads * (rows / tile_rows + segments.rows.dims[0]);
  const int64_t quantum = plan_warps * split_keys;
  const int64_t quanta = (int64_t{kv.table.dims[1]} * kv.page_tokens + quantum - 1) / quantum;
  return std::min(max_split_slots, lanes * quanta * plan_warps);
}

void attention_scratch(Queue queue, Tensor q, const PagedKv& kv, const Segments& segments,
                       const AttentionParams& params, int64_t& bytes) {
  bytes = 0;
  if (!on_matrix_units(q, kv)) return;
  const int64_t slot = tile_rows * (rounded_dims(kv.head_dim) + 2) * sizeof(float);
  bytes = slots_of(queue, q, kv, segments, params.heads) * slot;
}

void attention(Queue queue, Tensor out, Tensor q, const PagedKv& kv, const Segments& segments,
               const AttentionParams& params, std::byte* scratch) {
  if (q.dims[0] == 0) return;
  if (!on_matrix_units(q, kv)) return plain_attention(queue, out, q, kv, segments, params);
  const int dims = rounded_dims(kv.head_dim);
  const bool aligned = reinterpret_cast<uintptr_t>(q.data) % 16 == 0 && q.strides[0] % chunk_dims == 0;
  const SplitCall split{AttentionCall(out, q, kv, segments, params),
                        reinterpret_cast<float*>(scratch),
                        slots_of(queue, q, kv, segments, params.heads),
                        native(queue).arrivals,
                        blocks_of(queue, dims),
                        aligned && q.dtype == kv.dtype};
  kv.dtype == Dtype::f16 ? launch_split_f16(queue, split, dims) : launch_split_bf16(queue, split, dims);
}

const bool added = kernels::attention.add(DeviceKind::cuda, attention) &&
                   kernels::attention_scratch.add(DeviceKind::cuda, attention_scratch);

}  // namespace
}  // namespace quern::cuda
