// rope_and_write_kv: what lies between the projections of queries, keys and values and attention, as one operation.
#pragma once

#include "ops/attention.h"
#include "ops/exec.h"
#include "ops/kernel.h"
#include "tensor/tensor.h"

namespace quern {

/// What is done to the heads of queries and keys.
struct HeadTransform {
  Tensor q_norm;  // [head_dim] f32: weights of rms_norm_heads(), or none
  Tensor k_norm;  // the same; both or neither
  float eps = 0.0F;
  Tensor table;  // of rope_table(), or none: no rotation
  bool interleaved = false;
};

/// rms_norm_heads() of q and k, rope() of both, and write_kv() of k and v. q changes in place; what is in k afterwards
/// is not defined.   q: [tokens, heads * head_dim] activations   k, v: [tokens, kv heads * head_dim] activations
void rope_and_write_kv(Exec& exec, Tensor q, Tensor k, Tensor v, const HeadTransform& transform, const PagedKv& kv,
                       const Segments& segments);

namespace kernels {
inline constinit Kernel<void(Tensor q, Tensor k, Tensor v, const HeadTransform& transform, const PagedKv& kv,
                             const Segments& segments)>
    rope_and_write_kv{"rope_and_write_kv"};
}  // namespace kernels

}  // namespace quern
