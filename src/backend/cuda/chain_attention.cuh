// Attention of one token in a chain. A block takes a task, up to chain_queries query heads of one kv head, and a share
// of the keys; its warps take keys in turn. What the blocks of a task leave is merged by the last of them.
#pragma once

#include "backend/cuda/chain_product.cuh"

namespace quern::cuda {

/// How the keys of a token are shared out.
struct ChainKeys {
  static constexpr int least = 64;  // of a split
  static constexpr int most_splits = 32;
  int position;
  int row;  // of the page table
  int tasks;
  int first;
  int end;
  int each;
  int splits;

  __device__ explicit ChainKeys(const ChainAttention& shape) {
    position = *shape.position;
    row = *shape.row;
    tasks = shape.pages.kv_heads * shape.tasks_of_head;
    const int most = min(most_splits, max(1, static_cast<int>(gridDim.x) / tasks));
    first = position < 0 ? 0 : shape.sight.first_key(position);
    end = position + 1;
    each = max(least, (end - first + most - 1) / most);
    splits = max(1, (end - first + each - 1) / each);
  }
  __device__ __forceinline__ int begin_of(int number) const { return first + number / tasks * each; }
  __device__ __forceinline__ int end_of(int number) const { return min(begin_of(number) + each, end); }
};

/// The numbers of the pages that this block reads for the first shape of attention, which it needs in every layer.
struct ChainPages {
  int first = 0;
  int count = 0;

  __device__ explicit ChainPages(ChainMemory memory) {
    if (memory.program().attention[0].pages.page_tokens == 0) return;
    const ChainAttention& shape = memory.program().attention[0];
    const ChainKeys keys(shape);
    const auto number = static_cast<int>(blockIdx.x);
    if (number >= keys.tasks * keys.splits || keys.position < 0) return;
    first = keys.begin_of(number) >> shape.page_shift;
    count = ((keys.end_of(number) - 1) >> shape.page_shift) + 1 - first;
    if (count > chain_pages) count = 0;
    const int* const table = shape.pages.table + keys.row * shape.pages.table_stride + first;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < count; i += chain_threads) memory.pages()[i] = __ldg(table + i);
  }
};

template <typename T, int dims, typename Element>
class ChainTask {
 public:
  __device__ ChainTask(const ChainRecord& record, ChainMemory memory, const ChainKeys& keys, const ChainPages& pages,
                       int number)
      : record_(record),
        shape_(memory.program().attention[record.shape]),
        memory_(memory),
        keys_(keys),
        pages_(pages),
        split_(number / keys.tasks),
        task_(number - split_ * keys.tasks),
        kv_head_(task_ / shape_.tasks_of_head),
        first_query_((task_ - kv_head_ * shape_.tasks_of_head) * chain_queries),
        queries_(min(chain_queries, shape_.group - first_query_)),
        begin_(keys.begin_of(number)),
        end_(keys.end_of(number)),
        kept_(record.shape == 0 && number == static_cast<int>(blockIdx.x)) {}

  __device__ void run(unsigned* arrivals) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const bool has_new = keys_.position >= begin_ && keys_.position < end_;
    const int mine = begin_ + static_cast<int>(threadIdx.x) / lanes_of_key;
    Eight keys[ahead + 1];
    Eight values[ahead + 1];
#pragma unroll
    for (int i = 0; i < ahead; ++i) load(keys[i], values[i], mine + i * step_keys);  // old ones; meanwhile:
    if (warp < chain_queries || (has_new && warp < chain_queries + 2)) transform(warp);
    sync_chain();
    attend(keys, values, mine);
    sync_chain();
    leave();
    if (keys_.splits == 1) return;
    sync_chain();
    if (threadIdx.x == 0) {
      unsigned before;
      asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(arrivals + task_) : "memory");
      heads().last = before + 1 == static_cast<unsigned>(keys_.splits) ? 1 : 0;
      if (heads().last != 0) arrivals[task_] = 0;
    }
    sync_chain();
    if (heads().last != 0) merge_splits();
  }

 private:
  static constexpr int lanes_of_key = dims / 8;
  static constexpr int keys_of_warp = 32 / lanes_of_key;
  static constexpr int step_keys = chain_warps * keys_of_warp;  // of a turn of all warps
  static constexpr int ahead = 2;                               // keys that are on their way while one is used

  /// Eight elements as they are stored.
  struct Eight {
    std::conditional_t<sizeof(Element) == 2, uint4, uint2> words;

    __device__ __forceinline__ void load(const Element* from) {
      words = __ldcg(reinterpret_cast<const decltype(words)*>(from));
    }
    __device__ __forceinline__ void get(float (&to)[8]) const {
      if constexpr (sizeof(Element) == 2) {
        const auto packet = *reinterpret_cast<const Packet<Element, 8>*>(&words);
#pragma unroll
        for (int i = 0; i < 8; ++i) to[i] = to_float(packet.v[i]);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 pair = halves(halves_of_e4m3((i < 2 ? words.x : words.y) >> (16 * (i % 2)) & 0xFFFFU));
          to[2 * i] = pair.x;
          to[2 * i + 1] = pair.y;
        }
      }
    }
  };

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ __forceinline__ int dim() { return lane() % lanes_of_key * 8; }

  __device__ __forceinline__ ChainHeads<dims>& heads() const {
    return *reinterpret_cast<ChainHeads<dims>*>(memory_.x());
  }
  __device__ __forceinline__ int query_head(int i) const { return kv_head_ * shape_.group + first_query_ + i; }
  __device__ __forceinline__ float scale_of(const float* scales) const {
    return scales == nullptr ? 1.0F : __ldg(scales + kv_head_);
  }

  /// Where a dimension of a key is; its value lies values_after() behind.
  __device__ __forceinline__ Element* at(int key, int of) const {
    const int index = key >> shape_.page_shift;
    const int page = kept_ && index - pages_.first < pages_.count
                         ? memory_.pages()[index - pages_.first]
                         : __ldg(shape_.pages.table + keys_.row * shape_.pages.table_stride + index);
    const int slot = (key - (index << shape_.page_shift)) / unit_keys * unit_keys;
    return reinterpret_cast<Element*>(record_.attention.layer + page * shape_.pages.page_bytes) +
           kv_head_ * shape_.pages.head_elements + slot * dims +
           unit_offset(shape_.pages.panels, dims, key % unit_keys, of);
  }

  /// Norm and rotation of head vector `number`: queries, then the key, then the value, which are kept in the page.
  __device__ void transform(int number) const {
    const bool is_q = number < chain_queries;
    const bool is_k = number == chain_queries;
    const auto& call = record_.attention;
    if (is_q && number >= queries_) {
      for (int i = lane(); i < dims; i += 32) heads().q[number][i] = 0.0F;
      return;
    }
    const auto* const from = static_cast<const T*>(is_q   ? call.q
                                                   : is_k ? call.k
                                                          : call.v) +
                             int64_t{is_q ? query_head(number) : kv_head_} * dims;
    constexpr int each = dims / 32;
    const float* const norm = is_q ? call.q_norm : is_k ? call.k_norm : nullptr;
    const int pairs = is_q || is_k ? shape_.pairs : 0;
    const bool interleaved = shape_.interleaved;
    float values[each];
    float weights[each];
    float cosines[each];
    float sines[each];
#pragma unroll
    for (int j = 0; j < each; ++j) {  // all on their way at once
      const int i = lane() + 32 * j;
      const auto bits = __ldcg(reinterpret_cast<const unsigned short*>(from + i));
      values[j] = to_float(*reinterpret_cast<const T*>(&bits));
      weights[j] = norm == nullptr ? 1.0F : __ldg(norm + i);
      const int pair = interleaved ? i / 2 : i >= pairs ? i - pairs : i;
      const bool turns = i < 2 * pairs;
      cosines[j] = turns ? __ldg(shape_.table + pair) : 1.0F;
      sines[j] = turns ? __ldg(shape_.table + pairs + pair) : 0.0F;
    }
    if (norm != nullptr) {
      float sum = 0.0F;
#pragma unroll
      for (int j = 0; j < each; ++j) sum = fmaf(values[j], values[j], sum);
      const float scale = rsqrtf(warp_sum(sum) * (1.0F / dims) + shape_.norm_eps);
#pragma unroll
      for (int j = 0; j < each; ++j) values[j] *= scale * weights[j];
    }
    float* const raw = heads().raw[number];
#pragma unroll
    for (int j = 0; j < each; ++j) raw[lane() + 32 * j] = values[j];
    __syncwarp();
    Element* const kept = is_q ? nullptr : at(keys_.position, 0) + (is_k ? 0 : shape_.pages.values_after());
    const float factor = is_q ? shape_.sight.scale * scale_of(call.k_scale)
                         : std::is_same_v<Element, E4m3>
                             ? __fdividef(1.0F, scale_of(is_k ? call.k_scale : call.v_scale))
                             : 1.0F;
#pragma unroll
    for (int j = 0; j < each; ++j) {
      const int i = lane() + 32 * j;
      const bool second = interleaved ? i % 2 == 1 : i >= pairs;
      const float other = i < 2 * pairs ? raw[interleaved ? i ^ 1 : second ? i - pairs : i + pairs] : 0.0F;
      const float value = fmaf(second ? other : -other, sines[j], values[j] * cosines[j]);
      if (is_q) {
        heads().q[number][i] = to_float(from_float<T>(value)) * factor;
      } else {
        const int row = keys_.position % unit_keys;
        kept[unit_offset(shape_.pages.panels, dims, row, i) - unit_offset(shape_.pages.panels, dims, row, 0)] =
            from_float<Element>(value * factor);
      }
    }
  }

  /// Eight dimensions of a query, each time again: registers are few.
  __device__ __forceinline__ void load_query(float (&to)[8], int i) const {
    const auto from = static_cast<unsigned>(__cvta_generic_to_shared(&heads().q[i][dim()]));
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
                 : "r"(from));
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(to[4]), "=f"(to[5]), "=f"(to[6]), "=f"(to[7])
                 : "r"(from + 16));
  }

  /// What one warp has seen of its keys.
  struct Sums {
    float most[chain_queries];
    float weight[chain_queries];
    float values[chain_queries][8];
  };

  __device__ __forceinline__ void load(Eight& key, Eight& value, int number) const {
    if (number >= end_) return;
    const Element* const from = at(number, dim());
    key.load(from);
    value.load(from + shape_.pages.values_after());
  }

  __device__ __forceinline__ void attend(Eight (&keys)[ahead + 1], Eight (&values)[ahead + 1], int mine) const {
    Sums sums;
#pragma unroll
    for (int i = 0; i < chain_queries; ++i) {
      sums.most[i] = -INFINITY;
      sums.weight[i] = 0.0F;
#pragma unroll
      for (int j = 0; j < 8; ++j) sums.values[i][j] = 0.0F;
    }
#pragma unroll 1
    for (int first = begin_; first < end_; first += step_keys) {
      const int key = mine + first - begin_;
      load(keys[ahead], values[ahead], key + ahead * step_keys);
      if (key == keys_.position) load(keys[0], values[0], key);  // it was not there before
      add(sums, keys[0], values[0], key < end_);
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        keys[i] = keys[i + 1];
        values[i] = values[i + 1];
      }
    }
    if constexpr (keys_of_warp > 1) merge_lanes(sums);
    const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int i = 0; i < chain_queries; ++i) {
      if (lane() == 0) {
        heads().weight[warp][i][0] = sums.most[i];
        heads().weight[warp][i][1] = sums.weight[i];
      }
      if (lane() >= lanes_of_key) continue;
#pragma unroll
      for (int j = 0; j < 8; ++j) heads().values[warp][i][dim() + j] = sums.values[i][j];
    }
  }

  /// One key.
  __device__ __forceinline__ void add(Sums& sums, const Eight& key, const Eight& value, bool there) const {
    float eight[8];
    float scores[chain_queries];
    key.get(eight);
#pragma unroll
    for (int i = 0; i < chain_queries; ++i) {
      float q[8];
      load_query(q, i);
      scores[i] = 0.0F;
#pragma unroll
      for (int j = 0; j < 8; ++j) scores[i] = fmaf(q[j], eight[j], scores[i]);
    }
    value.get(eight);
#pragma unroll
    for (int i = 0; i < chain_queries; ++i) {
      float score = scores[i];
#pragma unroll
      for (int other = lanes_of_key / 2; other > 0; other /= 2) score += __shfl_xor_sync(0xFFFFFFFFU, score, other);
      if (const float cap = shape_.sight.softcap; cap > 0) {  // tanh
        score = cap - __fdividef(2 * cap, 1.0F + __expf(__fdividef(2 * score, cap)));
      }
      const float most = there ? fmaxf(sums.most[i], score) : sums.most[i];
      const float factor = most == -INFINITY ? 1.0F : __expf(sums.most[i] - most);
      const float weight = there ? __expf(score - most) : 0.0F;
      sums.most[i] = most;
      sums.weight[i] = fmaf(sums.weight[i], factor, weight);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        sums.values[i][j] = there ? fmaf(weight, eight[j], sums.values[i][j] * factor) : sums.values[i][j];
      }
    }
  }

  /// Lanes that saw other keys of the same dims.
  static __device__ __forceinline__ void merge_lanes(Sums& sums) {
#pragma unroll 1
    for (int other = lanes_of_key; other < 32; other *= 2) {
#pragma unroll
      for (int i = 0; i < chain_queries; ++i) {
        const float theirs = __shfl_xor_sync(0xFFFFFFFFU, sums.most[i], other);
        const float most = fmaxf(sums.most[i], theirs);
        const float factor = most == -INFINITY ? 0.0F : __expf(sums.most[i] - most);
        sums.most[i] = most;
        sums.weight[i] *= factor;
        sums.weight[i] += __shfl_xor_sync(0xFFFFFFFFU, sums.weight[i], other);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          sums.values[i][j] *= factor;
          sums.values[i][j] += __shfl_xor_sync(0xFFFFFFFFU, sums.values[i][j], other);
        }
      }
    }
  }

  /// One dimension of one query.
  struct Merged {
    float most;
    float weight;
    float value;
  };
  /// What up to 32 parts left of a query: lane n has the largest score and the weights of part n, all lanes get a
  /// dimension of the sum in ascending order.
  template <int parts, typename Value>
  static __device__ __forceinline__ Merged merge(int count, float most, float weight, Value&& value_of) {
    float values[parts];
#pragma unroll
    for (int n = 0; n < parts; ++n) values[n] = n < count ? value_of(n) : 0.0F;
    Merged merged{warp_max(most), 0.0F, 0.0F};
    const float factor = most == -INFINITY ? 0.0F : __expf(most - merged.most);
    merged.weight = warp_sum(weight * factor);
#pragma unroll
    for (int n = 0; n < parts; ++n) {
      merged.value = fmaf(values[n], __shfl_sync(0xFFFFFFFFU, factor, n), merged.value);
    }
    return merged;
  }

  __device__ __forceinline__ void put(int i, int of, const Merged& merged) const {
    const int head = query_head(i);
    float weight = merged.weight;
    float value = merged.value;
    if (record_.attention.sinks != nullptr) {
      const float sink = __ldg(record_.attention.sinks + head);
      const float both = fmaxf(merged.most, sink);
      const float factor = merged.most == -INFINITY ? 0.0F : __expf(merged.most - both);
      weight = fmaf(weight, factor, __expf(sink - both));
      value *= factor;
    }
    const float result = weight == 0.0F ? 0.0F : __fdividef(value, weight) * scale_of(record_.attention.v_scale);
    static_cast<T*>(record_.attention.out)[int64_t{head} * dims + of] = from_float<T>(result);
  }

  __device__ __forceinline__ float* partial(int split) const {
    return shape_.partials + (int64_t{task_} * keys_.splits + split) * chain_queries * (dims + 2);
  }
  /// What the block's warps have seen. Whole warps have one query.
  __device__ __forceinline__ void leave() const {
#pragma unroll 1
    for (int place = static_cast<int>(threadIdx.x); place < queries_ * dims; place += chain_threads) {
      const int i = place / dims;
      const int of = place % dims;
      const bool part = lane() < chain_warps;
      const Merged merged = merge<chain_warps>(chain_warps, part ? heads().weight[lane()][i][0] : -INFINITY,
                                               part ? heads().weight[lane()][i][1] : 0.0F,
                                               [&](int n) { return heads().values[n][i][of]; });
      if (keys_.splits == 1) {
        put(i, of, merged);
        continue;
      }
      float* const to = partial(split_) + i * (dims + 2);
      __stcg(to + of, merged.value);
      if (of == 0) {
        __stcg(to + dims, merged.most);
        __stcg(to + dims + 1, merged.weight);
      }
    }
  }
  __device__ __forceinline__ void merge_splits() const {
    constexpr int64_t pitch = int64_t{chain_queries} * (dims + 2);
#pragma unroll 1
    for (int place = static_cast<int>(threadIdx.x); place < queries_ * dims; place += chain_threads) {
      const int i = place / dims;
      const int of = place % dims;
      const float* const from = partial(0) + i * (dims + 2);
      const bool part = lane() < keys_.splits;
      put(i, of,
          merge<ChainKeys::most_splits>(keys_.splits, part ? __ldcg(from + lane() * pitch + dims) : -INFINITY,
                                        part ? __ldcg(from + lane() * pitch + dims + 1) : 0.0F,
                                        [&](int n) { return __ldcg(from + n * pitch + of); }));
    }
  }

  const ChainRecord& record_;
  const ChainAttention& shape_;
  const ChainMemory memory_;
  const ChainKeys& keys_;
  const ChainPages& pages_;
  const int split_;  // of the keys
  const int task_;   // kv head, then queries
  const int kv_head_;
  const int first_query_;
  const int queries_;
  const int begin_;
  const int end_;
  const bool kept_;  // page numbers are in pages_
};

/// Keys and values that this block will read, while the products in front of attention still run.
__device__ __forceinline__ void bring_keys_near(const ChainRecord& record, ChainMemory memory,
                                                const ChainPages& pages) {
  const ChainAttention& shape = memory.program().attention[record.shape];
  if (record.shape != 0 || pages.count == 0) return;
  const ChainKeys keys(shape);
  const auto number = static_cast<int>(blockIdx.x);
  const int head = number % keys.tasks / shape.tasks_of_head;
  const int element = shape.f8 ? 1 : 2;
  const int unit_bytes = unit_keys * shape.pages.head_dim * element;
  const int lines = unit_bytes / 128;
  const int begin = keys.begin_of(number) / unit_keys;
  const int units = (keys.end_of(number) + unit_keys - 1) / unit_keys - begin;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < units * lines; i += chain_threads) {
    const int key = (begin + i / lines) * unit_keys;
    const int page = memory.pages()[(key >> shape.page_shift) - pages.first];
    const std::byte* const at =
        record.attention.layer + page * shape.pages.page_bytes +
        (int64_t{head} * shape.pages.head_elements + key % shape.pages.page_tokens * shape.pages.head_dim) * element +
        i % lines * 128;
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at + shape.pages.values_after() * element));
  }
}

template <typename T, int dims, typename Element>
__device__ __noinline__ void attend(int record, const ChainPages& pages) {
  const ChainMemory memory;
  const ChainKeys keys(memory.program().attention[memory.program().record[record].shape]);
#pragma unroll 1
  for (int number = static_cast<int>(blockIdx.x); number < keys.tasks * keys.splits;
       number += static_cast<int>(gridDim.x)) {
    ChainTask<T, dims, Element>(memory.program().record[record], memory, keys, pages, number)
        .run(memory.program().arrivals);
    sync_chain();
  }
}

template <typename T, typename Element>
__device__ __forceinline__ void attend(int record, const ChainPages& pages) {
  const ChainProgram& program = ChainMemory().program();
  switch (program.attention[program.record[record].shape].pages.head_dim) {
    case 64: return attend<T, 64, Element>(record, pages);
    case 128: return attend<T, 128, Element>(record, pages);
    default: return attend<T, 256, Element>(record, pages);
  }
}

}  // namespace quern::cuda
