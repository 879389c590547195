#include "ops/attention.h"

namespace quern {
namespace {

/// Steps of more tokens have work for all threads without splitting the keys.
constexpr int32_t max_split_tokens = 8;

int32_t splits(const PagedKv& kv) {
  const int64_t keys = int64_t{kv.table.dims[1]} * kv.page_tokens;
  return static_cast<int32_t>((keys + attention_split_keys - 1) / attention_split_keys);
}

int32_t partial_floats(const PagedKv& kv) { return (kv.head_dim + 15) / 16 * 16 + 2; }

void check(const PagedKv& kv, const Segments& segments) {
  CHECK(kv.page_tokens > 0 && kv.page_tokens % 16 == 0 && kv.heads > 0);
  CHECK(kv.head_dim > 0 && kv.head_dim <= max_head_dim);
  CHECK(kv.dtype == Dtype::f16 || kv.dtype == Dtype::bf16 || kv.dtype == Dtype::f32);
  CHECK(kv.table.rank == 2 && kv.table.dtype == Dtype::i32 && segments.positions.dtype == Dtype::i32);
  CHECK(segments.starts.dims[0] == segments.rows.dims[0] + 1);
}

}  // namespace

void write_kv(Exec& exec, Tensor k, Tensor v, const PagedKv& kv, const Segments& segments) {
  check(kv, segments);
  CHECK(k.rank == 2 && k.dtype == exec.activations && k.dims[1] == kv.heads * kv.head_dim);
  CHECK(v.rank == 2 && v.dtype == exec.activations && v.dims[1] == k.dims[1] && v.dims[0] == k.dims[0]);
  kernels::write_kv(exec, k, v, kv, segments);
}

int64_t attention_scratch_bytes(int32_t tokens, const PagedKv& kv, int32_t segments, const AttentionParams& params) {
  const auto rounded = [](int64_t bytes) { return (bytes + 63) / 64 * 64; };
  const int64_t sums = tokens <= max_split_tokens && splits(kv) > 1
                           ? int64_t{tokens} * params.heads * splits(kv) * partial_floats(kv) * dtype_bytes(Dtype::f32)
                           : 0;
  return rounded(int64_t{segments + 1} * dtype_bytes(Dtype::i32)) + rounded(sums);
}

Tensor attention(Exec& exec, Tensor q, const PagedKv& kv, const Segments& segments, const AttentionParams& params) {
  check(kv, segments);
  CHECK(q.rank == 2 && q.dtype == exec.activations && q.dims[1] == params.heads * kv.head_dim);
  CHECK(params.heads % kv.heads == 0);
  const Tensor out = exec.arena.tensor(q.dtype, q.dims[0], q.dims[1]);

  const Arena::Scope scope(exec.arena);
  AttentionScratch scratch;
  scratch.first_items = exec.arena.tensor(Dtype::i32, segments.starts.dims[0]);
  if (q.dims[0] <= max_split_tokens && splits(kv) > 1) {
    const int32_t sums = q.dims[0] * params.heads;
    const int64_t bytes = int64_t{sums} * splits(kv) * partial_floats(kv) * dtype_bytes(Dtype::f32);
    scratch.partials = Tensor::dense(exec.arena.take(bytes), Dtype::f32, sums, splits(kv), partial_floats(kv));
  }
  kernels::attention(exec, out, q, kv, segments, params, scratch);
  return out;
}

}  // namespace quern
