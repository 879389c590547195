#include "backend/cuda/attention_pages.cuh"

namespace quern::cuda {
namespace {

constexpr int max_threads = 256;

/// `count` values times a factor, converted.
template <int count, typename To, typename From>
__device__ __forceinline__ void convert(To* to, const From* from, float factor) {
  struct alignas(count * sizeof(From)) Source {
    From values[count];
  };
  struct alignas(count * sizeof(To)) Target {
    To values[count];
  };
  const Source source = *reinterpret_cast<const Source*>(from);
  Target target;
#pragma unroll
  for (int i = 0; i < count; ++i) target.values[i] = from_float<To>(to_float(source.values[i]) * factor);
  *reinterpret_cast<Target*>(to) = target;
}

/// A block for each token; y: K or V. A thread moves `count` values at a time, which stay together in a page.
template <int count, typename To, typename From>
__global__ void __launch_bounds__(max_threads)
    write(Pages pages, Spans spans, const From* k, const From* v, int64_t k_stride, int64_t v_stride) {
  allow_next();
  wait_for_previous();
  const int token = blockIdx.x;
  const int position = spans.positions[token];
  if (position < 0) return;
  const int segment = segment_of(spans, token);
  const int page = pages.table[spans.rows[segment] * pages.table_stride + position / pages.page_tokens];
  const From* from = blockIdx.y == 0 ? k + token * k_stride : v + token * v_stride;
  const int values = pages.kv_heads * pages.head_dim;
  for (int i = threadIdx.x * count; i < values; i += blockDim.x * count) {
    const int head = i / pages.head_dim;
    To* unit = pages.unit<To>(page, head, position) + (blockIdx.y == 0 ? 0 : pages.values_after());
    const int dim = i % pages.head_dim;
    const float scale = blockIdx.y == 0 ? pages.key_scale(head) : pages.value_scale(head);
    convert<count>(unit + unit_offset(pages.panels, pages.head_dim, position % unit_keys, dim), from + i, 1.0F / scale);
  }
}

/// Whether rows of `bytes` per element can be moved in words of 16 bytes and less.
bool aligned(const Tensor& x, int64_t values) {
  return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.strides[0] % values == 0;
}

template <typename To, typename From>
void write_as(Queue queue, Tensor k, Tensor v, const PagedKv& kv, const Segments& segments) {
  constexpr int wide = 16 / (sizeof(To) > sizeof(From) ? sizeof(To) : sizeof(From));
  const bool together = kv.head_dim % wide == 0 && aligned(k, wide) && (!v || aligned(v, wide));
  const int count = together ? wide : 1;
  const int moves = (kv.heads * kv.head_dim + count - 1) / count;
  const auto block = static_cast<unsigned>(std::min(max_threads, (moves + 31) / 32 * 32));
  const dim3 grid(static_cast<unsigned>(k.dims[0]), v ? 2 : 1);
  launch(queue, together ? write<wide, To, From> : write<1, To, From>, grid, block, 0, Pages(kv), Spans(segments),
         k.as<From>(), v ? v.as<From>() : nullptr, k.strides[0], v.strides[0]);
}

void write_kv(Queue queue, Tensor k, Tensor v, const PagedKv& kv, const Segments& segments) {
  visit_activation(k.dtype, [&]<typename From>(From) {
    visit_cached(kv.dtype, [&]<typename To>(To) { write_as<To, From>(queue, k, v, kv, segments); });
  });
}

const bool added = kernels::write_kv.add(DeviceKind::cuda, write_kv);

}  // namespace
}  // namespace quern::cuda
