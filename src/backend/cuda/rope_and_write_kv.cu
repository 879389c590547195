#include "ops/rope_and_write_kv.h"

#include <algorithm>
#include <bit>

#include "backend/cuda/attention_pages.cuh"
#include "backend/cuda/vectors.h"

namespace quern::cuda {
namespace {

constexpr int warps = 8;
constexpr int max_team_threads = 512;

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

/// Keys or values, those of 8-bit floats times a factor.
template <int width, typename Element>
__device__ __forceinline__ void store_cached(Element* to, const float (&values)[width], float factor) {
  if constexpr (std::is_same_v<Element, E4m3>) {
    float scaled[width];
#pragma unroll
    for (int i = 0; i < width; ++i) scaled[i] = values[i] * factor;
    store_floats(to, scaled);
  } else {
    store_floats(to, values);
  }
}

/// A head on its way: `width` neighbouring values at a time.
template <int width, typename T, typename Element>
struct Head {
  const T* from;
  const float* weights;  // of its norm, or null
  float scale;
  float factor;   // of keys and values that are stored as 8-bit floats
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
    store_cached(unit + unit_offset(panels, head_dim, row, dim), values, factor);
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

/// The segment of a token, looked for by a whole warp at once.
__device__ __forceinline__ int segment_of_warp(const Spans& spans, int token) {
  unsigned begun = 0;
  for (int i = threadIdx.x % 32; i < spans.segments; i += 32) begun += spans.starts[i] <= token ? 1 : 0;
  return static_cast<int>(__reduce_add_sync(0xFFFFFFFFU, begun)) - 1;
}

/// Two vectors of a head: what a lane of its team has of it.
template <int width>
struct Vectors {
  float a[width];
  float b[width];

  template <typename T>
  __device__ __forceinline__ void load(const T* from, int first, int second) {
    load_floats(a, from + first);
    load_floats(b, from + second);
  }
  __device__ __forceinline__ float squares() const {
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < width; ++i) sum = fmaf(a[i], a[i], fmaf(b[i], b[i], sum));
    return sum;
  }
  __device__ __forceinline__ void multiply(float scale, const Vectors& by) {
#pragma unroll
    for (int i = 0; i < width; ++i) {
      a[i] *= scale * by.a[i];
      b[i] *= scale * by.b[i];
    }
  }
  static __device__ __forceinline__ void rotate(float& x, float& y, float cosine, float sine) {
    const float first = x * cosine - y * sine;
    y = y * cosine + x * sine;
    x = first;
  }
  /// Neighbours are pairs, or `a` with `b`; `by` has cosines and sines.
  template <bool interleaved>
  __device__ __forceinline__ void rotate(const Vectors& by) {
#pragma unroll
    for (int i = 0; i < width; ++i) {
      if constexpr (!interleaved) {
        rotate(a[i], b[i], by.a[i], by.b[i]);
      } else if (2 * i < width) {
        rotate(a[2 * i], a[2 * i + 1], by.a[i], by.b[i]);
      } else {
        rotate(b[2 * i - width], b[2 * i + 1 - width], by.a[i], by.b[i]);
      }
    }
  }
};

/// A block for each token; a team of `lanes` takes heads in turn, 32 bytes in a lane, so that whole heads are rotated.
template <bool interleaved, typename T, typename Element>
__global__ void __launch_bounds__(max_team_threads) transform_in_teams(const __grid_constant__ Job job, int lanes) {
  allow_next();
  constexpr int width = vector_of<T>;
  const int token = static_cast<int>(blockIdx.x);
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int half = lanes * width;
  const int first = interleaved ? 2 * lane * width : lane * width;
  const int second = interleaved ? first + width : first + half;
  const unsigned team_lanes = (~0U >> (32 - lanes)) << (threadIdx.x % 32 / lanes * lanes);
  wait_for_previous();
  const int position = job.spans.positions[token];
  if (position < 0) return;
  Vectors<width> turn;
  if (job.pairs > 0) turn.load(job.table + token * job.table_stride, lane * width, half + lane * width);
  const int segment = segment_of_warp(job.spans, token);
  const int page = job.pages.table[job.spans.rows[segment] * job.pages.table_stride + position / job.pages.page_tokens];
  const int row = position % unit_keys;
  const int head_dim = job.pages.head_dim;
  const int place[2] = {unit_offset(job.pages.panels, head_dim, row, first),
                        unit_offset(job.pages.panels, head_dim, row, second)};
  const int all = job.q.count + job.k.count + job.v.count;
  for (int number = threadIdx.x / lanes; number < all; number += blockDim.x / lanes) {
    const bool is_q = number < job.q.count;
    const bool is_v = number >= job.q.count + job.k.count;
    const int head = is_q ? number : number - job.q.count - (is_v ? job.k.count : 0);
    const Heads& heads = is_q ? job.q : is_v ? job.v : job.k;
    T* const at = static_cast<T*>(heads.data) + token * heads.stride + int64_t{head} * head_dim;
    Vectors<width> x;
    x.load(at, first, second);
    const float* const weights = is_q ? job.q_norm : job.k_norm;
    if (!is_v && weights != nullptr) {
      Vectors<width> norm;
      norm.load(weights, first, second);
      float sum = x.squares();
      for (int step = lanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(team_lanes, sum, step);
      x.multiply(rsqrtf(sum / static_cast<float>(head_dim) + job.eps), norm);
    }
    if (!is_v && job.pairs > 0) x.template rotate<interleaved>(turn);
    if (is_q) {
      store_floats(at + first, x.a);
      store_floats(at + second, x.b);
    } else {
      Element* const unit = job.pages.unit<Element>(page, head, position) + (is_v ? job.pages.values_after() : 0);
      const float factor = 1.0F / (is_v ? job.pages.value_scale(head) : job.pages.key_scale(head));
      store_cached(unit + place[0], x.a, factor);
      store_cached(unit + place[1], x.b, factor);
    }
  }
}

/// A warp for each head of a token: its queries, keys, values. Any size, alignment and part of a head.
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
    work.factor = 1.0F / (is_v ? job.pages.value_scale(head) : job.pages.key_scale(head));
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

/// Lanes of a team, or 0 where heads are not whole powers of two of 32 bytes that are rotated as a whole.
template <typename T>
int lanes_of_team(const Job& job, bool aligned) {
  const int head_dim = job.pages.head_dim;
  const int lanes = head_dim / (2 * vector_of<T>);
  const bool whole = head_dim % (2 * vector_of<T>) == 0 && std::has_single_bit(static_cast<unsigned>(lanes));
  return whole && lanes <= 32 && aligned && (job.pairs == 0 || 2 * job.pairs == head_dim) ? lanes : 0;
}

template <typename T, typename Element>
void run(Queue queue, const Job& job, int aligned_bytes, bool interleaved) {
  const int heads = job.q.count + job.k.count + job.v.count;
  if (const int lanes = lanes_of_team<T>(job, aligned_bytes >= 16); lanes > 0) {
    // Many tokens fill the GPU with small blocks; of few, all heads should be under way at once.
    const int most = job.spans.tokens > native(queue).multiprocessors ? 128 : max_team_threads;
    const int threads = std::min(most, (heads * lanes + 31) / 32 * 32);
    return launch(queue, interleaved ? transform_in_teams<true, T, Element> : transform_in_teams<false, T, Element>,
                  static_cast<unsigned>(job.spans.tokens), static_cast<unsigned>(threads), 0, job, lanes);
  }
  const bool in_twos =
      aligned_bytes >= 2 * static_cast<int>(sizeof(T)) && job.pages.head_dim % 2 == 0 && job.pairs % 2 == 0;
  auto kernel = interleaved ? transform_heads<1, true, T, Element> : transform_heads<1, false, T, Element>;
  if (in_twos) kernel = interleaved ? transform_heads<2, true, T, Element> : transform_heads<2, false, T, Element>;
  const int64_t all = int64_t{job.spans.tokens} * heads;
  launch(queue, kernel, static_cast<unsigned>((all + warps - 1) / warps), 32 * warps, 0, job);
}

/// To what all rows begin: 16, 8, 4 bytes, or less.
int alignment_of(std::initializer_list<Tensor> tensors) {
  for (const int bytes : {16, 8, 4}) {
    if (aligned_rows(tensors, bytes)) return bytes;
  }
  return 0;
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
  const int aligned = alignment_of(
      {q, k, v, table ? table : q, transform.q_norm ? transform.q_norm : q, transform.k_norm ? transform.k_norm : k});
  visit_activation(q.dtype, [&]<typename T>(T) {
    visit_cached(kv.dtype,
                 [&]<typename Element>(Element) { run<T, Element>(queue, job, aligned, transform.interleaved); });
  });
}

const bool added = kernels::rope_and_write_kv.add(DeviceKind::cuda, rope_and_write_kv);

}  // namespace
}  // namespace quern::cuda
