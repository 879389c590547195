#include <algorithm>

#include "backend/cpu/simd.h"
#include "base/thread_pool.h"
#include "ops/attention.h"

namespace quern::QUERN_ISA {
namespace {

/// `head_dim` values to consecutive places; 8-bit floats are multiplied with `factor` before.
void convert(uint16_t* to, const float* from, int32_t head_dim, float /*factor*/) {
  int32_t i = 0;
  for (; i + lanes <= head_dim; i += lanes) store(to + i, load(from + i));
  for (; i < head_dim; ++i) to[i] = f32_to_f16(from[i]);
}
void convert(float* to, const float* from, int32_t head_dim, float /*factor*/) { std::copy_n(from, head_dim, to); }
void convert(uint8_t* to, const float* from, int32_t head_dim, float factor) {
  for (int32_t i = 0; i < head_dim; ++i) to[i] = f32_to_e4m3(from[i] * factor);
}

float inverse(const Tensor& scale, int32_t head) { return scale ? 1.0F / scale.as<float>()[head] : 1.0F; }

/// One token: K goes to column `slot` of [heads, dim, page_tokens], V, if there is one, to row `slot` of
/// [heads, page_tokens, dim].
template <typename Element>
void write_token(std::byte* page, const float* k, const float* v, const PagedKv& kv, int32_t slot) {
  const int64_t head_elements = int64_t{kv.page_tokens} * kv.head_dim;
  auto* keys = reinterpret_cast<Element*>(page + kv.layer_offset);
  Element* values = keys + kv.heads * head_elements;
  Element converted[max_head_dim];
  for (int32_t head = 0; head < kv.heads; ++head) {
    convert(converted, k + int64_t{head} * kv.head_dim, kv.head_dim, inverse(kv.k_scale, head));
    Element* column = keys + head * head_elements + slot;
    for (int32_t i = 0; i < kv.head_dim; ++i) column[int64_t{i} * kv.page_tokens] = converted[i];
    if (v == nullptr) continue;
    convert(values + head * head_elements + int64_t{slot} * kv.head_dim, v + int64_t{head} * kv.head_dim, kv.head_dim,
            inverse(kv.v_scale, head));
  }
}

void write_kv(Queue queue, Tensor k, Tensor v, const PagedKv& kv, const Segments& segments) {
  const auto* starts = segments.starts.as<int32_t>();
  const int32_t count = segments.rows.dims[0];
  auto& pool = *static_cast<ThreadPool*>(queue.native);
  pool.parallel_for(starts[count], 4, [&](int64_t begin, int64_t end) {
    int64_t segment = std::upper_bound(starts, starts + count + 1, begin) - starts - 1;
    for (int64_t token = begin; token < end; ++token) {
      while (token >= starts[segment + 1]) ++segment;
      const int32_t position = segments.positions.as<int32_t>()[token];
      if (position < 0) continue;  // nobody's
      const int32_t page = kv.table.row<int32_t>(segments.rows.as<int32_t>()[segment])[position / kv.page_tokens];
      std::byte* memory = kv.pool + page * kv.page_bytes;
      const int32_t slot = position % kv.page_tokens;
      const float* const values = v ? v.row<float>(token) : nullptr;
      if (kv.dtype == Dtype::f16) {
        write_token<uint16_t>(memory, k.row<float>(token), values, kv, slot);
      } else if (kv.dtype == Dtype::f8) {
        write_token<uint8_t>(memory, k.row<float>(token), values, kv, slot);
      } else {
        write_token<float>(memory, k.row<float>(token), values, kv, slot);
      }
    }
  });
}

const bool added = kernels::write_kv.add(DeviceKind::cpu, Isa::QUERN_ISA, write_kv);

}  // namespace
}  // namespace quern::QUERN_ISA
