#include "ops/rope_and_write_kv.h"

#include "ops/cost.h"

namespace quern {

void rope_and_write_kv(Exec& exec, Tensor q, Tensor k, Tensor v, const HeadTransform& transform, const PagedKv& kv,
                       const Segments& segments) {
  CHECK(kv.page_tokens > 0 && kv.page_tokens % 16 == 0 && kv.heads > 0 && kv.latent_dim == 0);
  CHECK(kv.head_dim > 0 && kv.head_dim <= max_head_dim && segments.positions.dims[0] == q.dims[0]);
  CHECK(segments.starts.dims[0] == segments.rows.dims[0] + 1);
  for (const Tensor& x : {q, k, v}) {
    CHECK(x.rank == 2 && x.dtype == exec.activations && x.strides[1] == 1 && x.dims[0] == q.dims[0]);
  }
  CHECK(q.dims[1] % kv.head_dim == 0 && k.dims[1] == kv.heads * kv.head_dim && v.dims[1] == k.dims[1]);
  CHECK(static_cast<bool>(transform.q_norm) == static_cast<bool>(transform.k_norm));
  CHECK(!transform.q_norm || (transform.q_norm.dims[0] == kv.head_dim && transform.k_norm.dims[0] == kv.head_dim));
  CHECK(!transform.table || (transform.table.dims[0] == q.dims[0] && transform.table.dims[1] <= kv.head_dim));
  tell_cost(exec, [&] {
    const double kept = 2.0 * k.dims[0] * kv.heads * kv.head_dim * dtype_bytes(kv.dtype);
    return Cost{.bytes = 2 * bytes_of(q) + bytes_of(k) + bytes_of(v) + bytes_of(transform.table) + kept};
  });
  kernels::rope_and_write_kv(exec, q, k, v, transform, kv, segments);
}

}  // namespace quern
