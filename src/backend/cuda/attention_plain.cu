// Attention without matrix units, in floats and one fixed order: for float activations or pages and for odd head sizes.
#include "backend/cuda/attention_plain.h"

#include "backend/cuda/attention_pages.cuh"

namespace quern::cuda {
namespace {

constexpr int warps = 4;  // of a block; each has a query and head
constexpr int lanes = 32;
constexpr int lane_dims = max_head_dim / lanes;

/// The dims of a head, spread over the lanes: lane, lane + 32, ...
struct Spread {
  float values[lane_dims];
};

struct Sums {
  float maximum = -INFINITY;
  float total = 0.0F;
  Spread values = {};
};

/// Score of the key in row `row` of a unit, the same in all lanes.
template <typename T>
__device__ float score(const T* unit, const Pages& pages, int row, const Spread& q) {
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < lane_dims; ++i) {
    const int dim = i * lanes + threadIdx.x;
    if (dim < pages.head_dim) sum += q.values[i] * to_float(unit[unit_offset(pages.panels, pages.head_dim, row, dim)]);
  }
  return warp_sum(sum);
}

/// Adds 16 keys; the query sees those of [first, end). Only these are read.
template <typename T>
__device__ void add_unit(Sums& sums, const T* keys, const Pages& pages, const Spread& q, int first, int end,
                         float softcap) {
  const int row = threadIdx.x % unit_keys;
  float mine = -INFINITY;
  for (int key = first; key < end; ++key) {
    const float found = score(keys, pages, key, q);
    if (row == key) mine = softcap > 0.0F ? softcap * tanhf(found / softcap) : found;
  }
  const float maximum = fmaxf(sums.maximum, warp_max(mine));
  const float rescale = expf(sums.maximum - maximum);
  const float weight = expf(mine - maximum);
  sums.maximum = maximum;
  sums.total = sums.total * rescale + warp_sum(threadIdx.x < unit_keys ? weight : 0.0F);
#pragma unroll
  for (float& value : sums.values.values) value *= rescale;
  const T* values = keys + pages.values_after();
  for (int key = first; key < end; ++key) {
    const float factor = __shfl_sync(0xFFFFFFFFU, weight, key);
#pragma unroll
    for (int i = 0; i < lane_dims; ++i) {
      const int dim = i * lanes + threadIdx.x;
      if (dim < pages.value_dim) {
        sums.values.values[i] += factor * to_float(values[unit_offset(pages.panels, pages.head_dim, key, dim)]);
      }
    }
  }
}

template <typename A, typename T>
__global__ void __launch_bounds__(lanes* warps) attend(AttentionCall call) {
  allow_next();
  wait_for_previous();
  const int token = blockIdx.x;
  const int head = blockIdx.y * warps + threadIdx.y;
  if (head >= call.heads) return;
  const Pages& pages = call.pages;
  const int segment = segment_of(call.spans, token);
  const int position = call.spans.positions[token];
  const int last = last_position(call.spans, call.spans.starts[segment], call.spans.starts[segment + 1]);
  const int first = call.sight.first_key(position);
  const int end = call.sight.end_key(position, last);
  const int* table = pages.table + call.spans.rows[segment] * pages.table_stride;

  Spread q;
  const A* from = static_cast<const A*>(call.q) + token * call.q_stride + head * pages.head_dim;
#pragma unroll
  for (int i = 0; i < lane_dims; ++i) {
    const int dim = i * lanes + threadIdx.x;
    q.values[i] =
        dim < pages.head_dim ? to_float(from[dim]) * (call.sight.scale * pages.key_scale(head / call.group)) : 0.0F;
  }
  Sums sums;
  if (call.sinks != nullptr) {
    sums.maximum = call.sinks[head];
    sums.total = 1.0F;
  }
  for (int key = first / unit_keys * unit_keys; key < end; key += unit_keys) {
    const T* unit = pages.unit<const T>(table[key / pages.page_tokens], head / call.group, key);
    add_unit(sums, unit, pages, q, max(0, first - key), min(unit_keys, end - key), call.sight.softcap);
  }
  const float factor = sums.total > 0.0F ? pages.value_scale(head / call.group) / sums.total : 0.0F;
  A* to = static_cast<A*>(call.out) + token * call.out_stride + head * pages.value_dim;
#pragma unroll
  for (int i = 0; i < lane_dims; ++i) {
    const int dim = i * lanes + threadIdx.x;
    if (dim < pages.value_dim) to[dim] = from_float<A>(sums.values.values[i] * factor);
  }
}

}  // namespace

void plain_attention(Queue queue, Tensor out, Tensor q, const PagedKv& kv, const Segments& segments,
                     const AttentionParams& params) {
  const dim3 grid(static_cast<unsigned>(q.dims[0]), static_cast<unsigned>((params.heads + warps - 1) / warps));
  visit_activation(q.dtype, [&]<typename A>(A) {
    visit_cached(kv.dtype, [&]<typename T>(T) {
      launch(queue, attend<A, T>, grid, dim3(lanes, warps), 0, AttentionCall(out, q, kv, segments, params));
    });
  });
}

}  // namespace quern::cuda
