#include "ops/rope_and_write_kv.h"

#include "ops/rms_norm.h"
#include "ops/rope.h"

namespace quern::QUERN_ISA {
namespace {

/// One after the other.
void rope_and_write_kv(Queue queue, Tensor q, Tensor k, Tensor v, const HeadTransform& transform, const PagedKv& kv,
                       const Segments& segments) {
  if (transform.q_norm) {
    const auto rms_norm = kernels::rms_norm.find(DeviceKind::cpu);
    const Tensor q_heads = heads_of(q, kv.head_dim);
    const Tensor k_heads = heads_of(k, kv.head_dim);
    rms_norm(queue, q_heads, q_heads, transform.q_norm, transform.eps);
    rms_norm(queue, k_heads, k_heads, transform.k_norm, transform.eps);
  }
  if (transform.table) {
    const auto rope = kernels::rope.find(DeviceKind::cpu);
    rope(queue, q, transform.table, kv.head_dim, transform.interleaved);
    rope(queue, k, transform.table, kv.head_dim, transform.interleaved);
  }
  kernels::write_kv.find(DeviceKind::cpu)(queue, k, v, kv, segments);
}

const bool added = kernels::rope_and_write_kv.add(DeviceKind::cpu, Isa::QUERN_ISA, rope_and_write_kv);

}  // namespace
}  // namespace quern::QUERN_ISA
