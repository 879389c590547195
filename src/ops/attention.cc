#include "ops/attention.h"

#include "ops/cost.h"

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

double token_bytes(const PagedKv& kv) {
  const int32_t dims = kv.latent_dim > 0 ? kv.head_dim : 2 * kv.head_dim;
  return static_cast<double>(kv.heads) * dims * dtype_bytes(kv.dtype);
}

Cost cost_of(Tensor out, Tensor q, const PagedKv& kv, const AttentionParams& params) {
  return {.bytes = bytes_of(q) + bytes_of(out),
          .key_bytes = token_bytes(kv),
          .pair_flops = 2.0 * params.heads * (kv.head_dim + kv.value_dim()),
          .window = params.window};
}

}  // namespace

void write_kv(Exec& exec, Tensor k, Tensor v, const PagedKv& kv, const Segments& segments) {
  check(kv, segments);
  CHECK(k.rank == 2 && k.dtype == exec.activations && k.dims[1] == kv.heads * kv.head_dim);
  CHECK(static_cast<bool>(v) == (kv.latent_dim == 0));
  CHECK(!v || (v.rank == 2 && v.dtype == exec.activations && v.dims[1] == k.dims[1] && v.dims[0] == k.dims[0]));
  tell_cost(exec, [&] { return Cost{.bytes = bytes_of(k) + bytes_of(v) + k.dims[0] * token_bytes(kv)}; });
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
  tell_cost(exec, [&] { return cost_of(out, q, kv, params); });
  kernels::attention(exec, out, q, kv, segments, params, scratch);
  return out;
}

}  // namespace quern
