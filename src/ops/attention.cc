#include "ops/attention.h"

namespace quern {
namespace {

void check(const PagedKv& kv, const Segments& segments) {
  CHECK(kv.page_tokens > 0 && kv.page_tokens % 16 == 0 && kv.heads > 0);
  CHECK(kv.head_dim > 0 && kv.head_dim <= max_head_dim && kv.latent_dim >= 0 && kv.latent_dim <= kv.head_dim);
  CHECK(kv.dtype == Dtype::f16 || kv.dtype == Dtype::bf16 || kv.dtype == Dtype::f32 || kv.dtype == Dtype::f8);
  CHECK(kv.dtype == Dtype::f8 || (!kv.k_scale && !kv.v_scale));
  CHECK(kv.table.rank == 2 && kv.table.dtype == Dtype::i32 && segments.positions.dtype == Dtype::i32);
  CHECK(segments.starts.dims[0] == segments.rows.dims[0] + 1);
}

}  // namespace

void write_kv(Exec& exec, Tensor k, Tensor v, const PagedKv& kv, const Segments& segments) {
  check(kv, segments);
  CHECK(k.rank == 2 && k.dtype == exec.activations && k.dims[1] == kv.heads * kv.head_dim);
  CHECK(static_cast<bool>(v) == (kv.latent_dim == 0));
  CHECK(!v || (v.rank == 2 && v.dtype == exec.activations && v.dims[1] == k.dims[1] && v.dims[0] == k.dims[0]));
  kernels::write_kv(exec, k, v, kv, segments);
}

Tensor attention(Exec& exec, Tensor q, const PagedKv& kv, const Segments& segments, const AttentionParams& params) {
  check(kv, segments);
  CHECK(q.rank == 2 && q.dtype == exec.activations && q.dims[1] == params.heads * kv.head_dim);
  CHECK(params.heads % kv.heads == 0);
  CHECK(!params.sinks || (params.sinks.dtype == Dtype::f32 && params.sinks.dims[0] == params.heads));
  const Tensor out = exec.arena.tensor(q.dtype, q.dims[0], params.heads * kv.value_dim());

  const Arena::Scope scope(exec.arena);
  int64_t bytes = 0;
  kernels::attention_scratch.find(exec.queue.kind)(exec.queue, q, kv, segments, params, bytes);
  std::byte* const scratch = exec.arena.take(bytes);
  kernels::attention(exec, out, q, kv, segments, params, scratch);
  return out;
}

}  // namespace quern
