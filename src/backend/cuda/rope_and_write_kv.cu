#include "ops/rope_and_write_kv.h"

#include "backend/cuda/attention_pages.cuh"
#include "backend/cuda/vectors.h"

namespace quern::cuda {
namespace {

constexpr int warps = 8;

struct Heads {
  void* data;
  int64_t stride;
  int count;
};

struct Job {
  Pages pages;
  Spans spans;
  Heads q, k, v;
  const float* q_norm;  // or null
  const float* k_norm;
  float eps;
  const float* table;
  int64_t table_stride;
  int pairs;  // 0: no rotation
};

/// A head on its way: `width` neighbouring values at a time.
template <int width, typename T, typename Element>
struct Head {
  const T* from;
  const float* weights;  // of its norm, or null
  float scale;
  T* in_place;    // where queries go
  Element* unit;  // where keys and values go, in the page
  int row;        // of the unit
  int head_dim;
  bool panels;

  __device__ __forceinline__ void load(int dim, float (&values)[width]) const {
    load_floats(values, from + dim);
    if (weights == nullptr) return;
#pragma unroll
    for (int i = 0; i < width; ++i) values[i] *= scale * weights[dim + i];
  }
  __device__ __forceinline__ void store(int dim, const float (&values)[width]) const {
    if (in_place != nullptr) return store_floats(in_place + dim, values);
    store_floats(unit + unit_offset(panels, head_dim, row, dim), values);
  }

  __device__ __forceinline__ void normalize(float eps) {
    float sum = 0.0F;
    for (int dim = threadIdx.x % 32 * width; dim < head_dim; dim += 32 * width) {
      float values[width];
      load_floats(values, from + dim);
#pragma unroll
      for (int i = 0; i < width; ++i) sum = fmaf(values[i], values[i], sum);
    }
    scale = rsqrtf(warp_sum(sum) / static_cast<float>(head_dim) + eps);
  }

  /// Pairs (i, i + pairs).
  __device__ __forceinline__ void rotate_halves(const float* cosines, const float* sines, int pairs) const {
    for (int pair = threadIdx.x % 32 * width; pair < pairs; pair += 32 * width) {
      float a[width];
      float b[width];
      float c[width];
      float s[width];
      load(pair, a);
      load(pairs + pair, b);
      load_floats(c, cosines + pair);
      load_floats(s, sines + pair);
#pragma unroll
      for (int i = 0; i < width; ++i) {
        const float first = a[i] * c[i] - b[i] * s[i];
        b[i] = b[i] * c[i] + a[i] * s[i];
        a[i] = first;
      }
      store(pair, a);
      store(pairs + pair, b);
    }
  }

  /// Pairs (2i, 2i + 1).
  __device__ __forceinline__ void rotate_neighbours(const float* cosines, const float* sines, int pairs) const {
    for (int pair = threadIdx.x % 32; pair < pairs; pair += 32) {
      float x[2];
      if constexpr (width == 2) {
        load(2 * pair, x);
      } else {
        float one[1];
        load(2 * pair, one);
        x[0] = one[0];
        load(2 * pair + 1, one);
        x[1] = one[0];
      }
      const float rotated[2] = {x[0] * cosines[pair] - x[1] * sines[pair], x[1] * cosines[pair] + x[0] * sines[pair]};
      if constexpr (width == 2) {
        store(2 * pair, rotated);
      } else {
        store(2 * pair, {rotated[0]});
        store(2 * pair + 1, {rotated[1]});
      }
    }
  }

  __device__ __forceinline__ void copy_from(int first) const {
    for (int dim = first + threadIdx.x % 32 * width; dim < head_dim; dim += 32 * width) {
      float values[width];
      load(dim, values);
      store(dim, values);
    }
  }
};

/// A warp for each head of a token: its queries, keys, values.
template <int width, bool interleaved, typename T, typename Element>
__global__ void __launch_bounds__(32 * warps) transform_heads(const __grid_constant__ Job job) {
  allow_next();
  const int all = job.q.count + job.k.count + job.v.count;
  const int64_t number = int64_t{blockIdx.x} * warps + threadIdx.x / 32;
  const auto token = static_cast<int>(number / all);
  int head = static_cast<int>(number % all);
  wait_for_previous();
  if (token >= job.spans.tokens) return;
  const int position = job.spans.positions[token];
  if (position < 0) return;

  Head<width, T, Element> work{};
  work.head_dim = job.pages.head_dim;
  work.panels = job.pages.panels;
  const bool is_q = head < job.q.count;
  const bool is_v = head >= job.q.count + job.k.count;
  if (!is_q) head -= is_v ? job.q.count + job.k.count : job.q.count;
  const Heads& heads = is_q ? job.q : is_v ? job.v : job.k;
  T* const at = static_cast<T*>(heads.data) + token * heads.stride + int64_t{head} * work.head_dim;
  work.from = at;
  if (is_q) {
    work.in_place = at;
  } else {
    const int segment = segment_of(job.spans, token);
    const int page =
        job.pages.table[job.spans.rows[segment] * job.pages.table_stride + position / job.pages.page_tokens];
    work.unit = job.pages.unit<Element>(page, head, position) + (is_v ? job.pages.values_after() : 0);
    work.row = position % unit_keys;
  }
  if (is_v) return work.copy_from(0);
  work.weights = is_q ? job.q_norm : job.k_norm;
  if (work.weights != nullptr) work.normalize(job.eps);
  const float* const cosines = job.table + token * job.table_stride;
  if constexpr (interleaved) {
    work.rotate_neighbours(cosines, cosines + job.pairs, job.pairs);
  } else {
    work.rotate_halves(cosines, cosines + job.pairs, job.pairs);
  }
  work.copy_from(2 * job.pairs);
}

Heads heads_of_tensor(Tensor x, int head_dim) { return {x.data, x.strides[0], x.dims[1] / head_dim}; }

template <typename T, typename Element>
void run(Queue queue, const Job& job, int width, bool interleaved) {
  const int64_t heads = int64_t{job.spans.tokens} * (job.q.count + job.k.count + job.v.count);
  auto kernel = interleaved ? transform_heads<1, true, T, Element> : transform_heads<1, false, T, Element>;
  if (width == 2) kernel = interleaved ? transform_heads<2, true, T, Element> : transform_heads<2, false, T, Element>;
  launch(queue, kernel, static_cast<unsigned>((heads + warps - 1) / warps), 32 * warps, 0, job);
}

void rope_and_write_kv(Queue queue, Tensor q, Tensor k, Tensor v, const HeadTransform& transform, const PagedKv& kv,
                       const Segments& segments) {
  const Tensor& table = transform.table;
  const Job job{Pages(kv),
                Spans(segments),
                heads_of_tensor(q, kv.head_dim),
                heads_of_tensor(k, kv.head_dim),
                heads_of_tensor(v, kv.head_dim),
                transform.q_norm ? transform.q_norm.as<float>() : nullptr,
                transform.k_norm ? transform.k_norm.as<float>() : nullptr,
                transform.eps,
                table ? table.as<float>() : nullptr,
                table ? table.strides[0] : 0,
                table ? table.dims[1] / 2 : 0};
  const bool aligned = aligned_rows({q, k, v}, 2 * dtype_bytes(q.dtype)) && (!table || aligned_rows({table}, 8));
  const int width = aligned && kv.head_dim % 2 == 0 && job.pairs % 2 == 0 ? 2 : 1;
  visit_activation(q.dtype, [&]<typename T>(T) {
    visit_activation(kv.dtype,
                     [&]<typename Element>(Element) { run<T, Element>(queue, job, width, transform.interleaved); });
  });
}

const bool added = kernels::rope_and_write_kv.add(DeviceKind::cuda, rope_and_write_kv);

}  // namespace
}  // namespace quern::cuda
