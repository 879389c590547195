// How a GPU keeps keys and values in pages, and one call of attention as its kernels see it.
#pragma once

#include "backend/cuda/floats.h"
#include "backend/cuda/launch.h"
#include "ops/attention.h"

namespace quern::cuda {

inline constexpr int unit_keys = 16;   // a page holds whole units
inline constexpr int panel_dims = 64;  // 128 bytes of 16-bit elements
inline constexpr int chunk_dims = 8;   // 16 bytes of them

/// Whether a unit is kept in panels: 16-bit elements in whole chunks. Others are plainly [token, dim].
inline bool in_panels(Dtype dtype, int head_dim) { return dtype_bytes(dtype) == 2 && head_dim % chunk_dims == 0; }

#ifdef __CUDACC__
/// Where element `dim` of key `row` is in a unit of 16 keys that is kept in panels: [panel, key, 64 dims], in which the
/// eight chunks of a key are swapped so that eight keys' same chunk lies in different banks of shared memory, once it
/// is copied there. A last panel of fewer dims is not swapped.
__device__ __forceinline__ int panel_offset(int head_dim, int row, int dim) {
  const int panel = dim / panel_dims;
  const int width = min(panel_dims, head_dim - panel * panel_dims);
  int chunk = dim % panel_dims / chunk_dims;
  if (width == panel_dims) chunk ^= row % 8;
  return panel * panel_dims * unit_keys + row * width + chunk * chunk_dims + dim % chunk_dims;
}
__device__ __forceinline__ int unit_offset(bool panels, int head_dim, int row, int dim) {
  return panels ? panel_offset(head_dim, row, dim) : row * head_dim + dim;
}
#endif

/// The pages of a layer.
struct Pages {
  std::byte* layer;  // of page 0
  int64_t page_bytes;
  const int* table;
  int64_t table_stride;
  int page_tokens;
  int kv_heads;
  int head_dim;
  int value_dim;
  int head_elements;  // of a page, for one kv head
  bool latent;        // values are the first dims of the keys
  bool panels;
  const float* k_scale;  // of each kv head, or null
  const float* v_scale;

  explicit Pages(const PagedKv& kv)
      : layer(kv.pool + kv.layer_offset),
        page_bytes(kv.page_bytes),
        table(kv.table.as<int32_t>()),
        table_stride(kv.table.strides[0]),
        page_tokens(kv.page_tokens),
        kv_heads(kv.heads),
        head_dim(kv.head_dim),
        value_dim(kv.value_dim()),
        head_elements(kv.page_tokens * kv.head_dim),
        latent(kv.latent_dim > 0),
        panels(in_panels(kv.dtype, kv.head_dim)),
        k_scale(kv.k_scale ? kv.k_scale.as<float>() : nullptr),
        v_scale(kv.v_scale ? kv.v_scale.as<float>() : nullptr) {}

#ifdef __CUDACC__
  /// Keys of a head, in the unit that key `key` of a row is in; its values lie values_after() elements behind.
  template <typename T>
  __device__ __forceinline__ T* unit(int page, int head, int key) const {
    const int slot = key % page_tokens / unit_keys * unit_keys;
    return reinterpret_cast<T*>(layer + page * page_bytes) + head * head_elements + slot * head_dim;
  }
  /// What stored keys and values of a head are multiplied with.
  __device__ __forceinline__ float key_scale(int head) const { return k_scale == nullptr ? 1.0F : k_scale[head]; }
  __device__ __forceinline__ float value_scale(int head) const { return v_scale == nullptr ? 1.0F : v_scale[head]; }
  __device__ __forceinline__ int64_t values_after() const { return latent ? 0 : int64_t{kv_heads} * head_elements; }
#endif
};

/// The sequences of a step.
struct Spans {
  const int* starts;
  const int* rows;
  const int* positions;
  int segments;
  int tokens;

  explicit Spans(const Segments& s)
      : starts(s.starts.as<int32_t>()),
        rows(s.rows.as<int32_t>()),
        positions(s.positions.as<int32_t>()),
        segments(s.rows.dims[0]),
        tokens(s.positions.dims[0]) {}
};

/// What a query sees.
struct Sight {
  float scale;
  float softcap;
  int window;
  bool causal;

  explicit Sight(const AttentionParams& params)
      : scale(params.scale), softcap(params.softcap), window(params.window), causal(params.causal) {}

#ifdef __CUDACC__
  __device__ __forceinline__ int first_key(int position) const {
    return window > 0 ? max(0, position - window + 1) : 0;
  }
  /// `last`: position of its segment's last token.
  __device__ __forceinline__ int end_key(int position, int last) const {
    if (position < 0) return 0;
    if (causal) return position + 1;
    return window > 0 ? min(last + 1, position + window) : last + 1;
  }
#endif
};

/// One call of attention.
struct AttentionCall {
  Pages pages;
  Spans spans;
  Sight sight;
  const void* q;
  void* out;
  int64_t q_stride;
  int64_t out_stride;
  Dtype activations;
  int heads;
  int group;           // query heads of a kv head
  const float* sinks;  // of each head, or null

  AttentionCall(Tensor result, Tensor queries, const PagedKv& kv, const Segments& segments,
                const AttentionParams& params)
      : pages(kv),
        spans(segments),
        sight(params),
        q(queries.data),
        out(result.data),
        q_stride(queries.strides[0]),
        out_stride(result.strides[0]),
        activations(queries.dtype),
        heads(params.heads),
        group(params.heads / kv.heads),
        sinks(params.sinks ? params.sinks.as<float>() : nullptr) {}
};

#ifdef __CUDACC__
/// The segment that query token `token` is in.
__device__ __forceinline__ int segment_of(const Spans& spans, int token) {
  int low = 0;
  int high = spans.segments;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (spans.starts[middle] <= token ? low : high) = middle;
  }
  return low;
}

/// Position of the last token of a segment that is somebody's; -1 if none is.
__device__ __forceinline__ int last_position(const Spans& spans, int begin, int end) {
  int last = end - 1;
  while (last > begin && spans.positions[last] < 0) --last;
  return last < begin ? -1 : spans.positions[last];
}
#endif

}  // namespace quern::cuda
