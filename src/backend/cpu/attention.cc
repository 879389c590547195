// Flash attention over pages. A unit of work is a tile of query rows that share a kv head, and a range of splits of its
// keys. Keys come in blocks of 32 at fixed positions: scores with keys in the lanes (one sum over dims per key), a
// running softmax, then values with dims in the lanes (one sum over ascending keys per dim). What a row does not see
// adds exact zeros, so neither the tile, the chunk nor the batch that a row is in can change its result.
#include "ops/attention.h"

#include <algorithm>

#include "backend/cpu/simd.h"
#include "base/thread_pool.h"

namespace quern::QUERN_ISA {
namespace {

constexpr int32_t block_keys = 32;
constexpr int32_t unit_keys = 16;  // a page holds whole units
constexpr int32_t max_tile_rows = 64;
constexpr int32_t tile_floats = 8192;
constexpr int32_t split_keys = 256;      // long contexts of few queries are spread over threads by splits of this many
constexpr int32_t max_split_tokens = 8;  // steps of more tokens have work for all threads without splitting the keys
constexpr float no_score = -1e30F;       // maximum of a row that has seen nothing
// Rows whose sums stay in registers.
constexpr int row_tile = lanes == 16 ? 6 : lanes == 8 ? 3 : 1;

/// What one thread works on. Query rows are (token, head of the group) pairs.
struct Tile {
  alignas(64) float q[tile_floats];                     // [rows, head_dim], scaled
  alignas(64) float split[tile_floats];                 // [rows, dims], weighted values of the split
  alignas(64) float total[tile_floats];                 // [rows, dims], of the splits before
  alignas(64) float keys[block_keys * max_head_dim];    // [head_dim, block_keys]
  alignas(64) float values[block_keys * max_head_dim];  // [block_keys, dims]
  alignas(64) float scores[max_tile_rows * block_keys];
  alignas(64) float split_sum[max_tile_rows * lanes];  // of weights, by lane
  float split_max[max_tile_rows];
  float total_sum[max_tile_rows];
  float total_max[max_tile_rows];
  float rescale[max_tile_rows];
  int32_t first_key[max_tile_rows];
  int32_t end_key[max_tile_rows];
  int32_t rows;
  int32_t dims;  // value_dim rounded up to vectors
};

struct Work {
  int32_t segment;
  int32_t head;       // kv head
  int32_t first_row;  // of the segment's query rows
  int32_t rows;
  int32_t first_split;  // the splits to do
  int32_t end_split;
};

/// Memory for the work of a step.
struct Scratch {
  Tensor first_items;  // [segments + 1] i32: number of the first unit of work of each segment
  Tensor partials;     // [tokens * heads, splits, dims + 2] f32: sums of every split; or none when there are queries
                       // enough for all threads
};

/// Splits that a step of so many tokens is cut into, 0 if it is not.
int32_t splits_of(int32_t tokens, const PagedKv& kv) {
  const int64_t keys = int64_t{kv.table.dims[1]} * kv.page_tokens;
  const auto splits = static_cast<int32_t>((keys + split_keys - 1) / split_keys);
  return tokens <= max_split_tokens && splits > 1 ? splits : 0;
}
int32_t rounded(int32_t dims) { return (dims + lanes - 1) / lanes * lanes; }
int32_t partial_floats(const PagedKv& kv) { return rounded(kv.value_dim()) + 2; }
int64_t first_item_bytes(int32_t segments) { return (int64_t{segments + 1} * dtype_bytes(Dtype::i32) + 63) / 64 * 64; }

Scratch scratch_in(std::byte* memory, int32_t tokens, const PagedKv& kv, int32_t segments, int32_t heads) {
  Scratch scratch;
  scratch.first_items = Tensor::dense(memory, Dtype::i32, segments + 1);
  const int32_t splits = splits_of(tokens, kv);
  if (splits == 0) return scratch;
  scratch.partials =
      Tensor::dense(memory + first_item_bytes(segments), Dtype::f32, tokens * heads, splits, partial_floats(kv));
  return scratch;
}

/// One call, as the parts below see it.
struct Call {
  Tensor out;
  Tensor q;
  const PagedKv& kv;
  const Segments& segments;
  const AttentionParams& params;
  const Scratch& scratch;
  int32_t group;      // query heads of a kv head
  int32_t tile_rows;  // rows of a tile
  int32_t dims;

  int32_t start(int32_t segment) const { return segments.starts.as<int32_t>()[segment]; }
  int32_t tokens(int32_t segment) const { return start(segment + 1) - start(segment); }
  int32_t position(int32_t token) const { return segments.positions.as<int32_t>()[token]; }
  int32_t tiles(int32_t segment) const { return (tokens(segment) * group + tile_rows - 1) / tile_rows; }
  float key_scale(int32_t kv_head) const {
    return kv.k_scale ? params.scale * kv.k_scale.as<float>()[kv_head] : params.scale;
  }
  float value_scale(int32_t kv_head) const { return kv.v_scale ? kv.v_scale.as<float>()[kv_head] : 1.0F; }
  /// Maximum and sum of weights before the first key.
  float first_max(int32_t head) const { return params.sinks ? params.sinks.as<float>()[head] : no_score; }
  float first_sum() const { return params.sinks ? 1.0F : 0.0F; }
  bool by_splits() const { return static_cast<bool>(scratch.partials); }
  /// Whether the keys of a segment are the work of several.
  bool is_split(int32_t segment) const { return by_splits() && end_split(segment) - first_split(segment) > 1; }

  int32_t first_key(int32_t token) const {
    return params.window > 0 ? std::max(0, position(token) - params.window + 1) : 0;
  }
  int32_t end_key(int32_t segment, int32_t token) const {
    if (params.causal) return position(token) + 1;
    const int32_t end = position(start(segment + 1) - 1) + 1;
    return params.window > 0 ? std::min(end, position(token) + params.window) : end;
  }
  int32_t first_split(int32_t segment) const { return first_key(start(segment)) / split_keys; }
  int32_t end_split(int32_t segment) const {
    const int32_t end = end_key(segment, start(segment + 1) - 1);
    return (end + split_keys - 1) / split_keys;
  }
};

/// Values that are the first dims of keys, from the keys that the tile has.
void values_of_keys(Tile& tile, int32_t unit, const PagedKv& kv) {
  for (int32_t j = unit * unit_keys; j < (unit + 1) * unit_keys; ++j) {
    float* const to = tile.values + j * tile.dims;
    for (int32_t i = 0; i < kv.latent_dim; ++i) to[i] = tile.keys[i * block_keys + j];
    std::fill_n(to + kv.latent_dim, tile.dims - kv.latent_dim, 0.0F);
  }
}

template <typename Element>
void load_unit(Tile& tile, int32_t unit, const Element* k, const Element* v, const PagedKv& kv) {
  for (int32_t i = 0; i < kv.head_dim; ++i) {
    float* to = tile.keys + i * block_keys + unit * unit_keys;
    for (int32_t j = 0; j < unit_keys; j += lanes) store(to + j, load(k + int64_t{i} * kv.page_tokens + j));
  }
  if (kv.latent_dim > 0) return values_of_keys(tile, unit, kv);
  const int32_t whole = kv.head_dim / lanes * lanes;
  for (int32_t j = 0; j < unit_keys; ++j) {
    float* to = tile.values + (unit * unit_keys + j) * tile.dims;
    for (int32_t i = 0; i < whole; i += lanes) store(to + i, load(v + int64_t{j} * kv.head_dim + i));
    if (whole == kv.head_dim) continue;
    Element rest[lanes] = {};
    std::copy_n(v + int64_t{j} * kv.head_dim + whole, kv.head_dim - whole, rest);
    store(to + whole, load(rest));
  }
}

/// Fills the tile's keys and values from the units that hold any of [first, end); the other unit becomes zeros.
template <typename Element>
void load_block(Tile& tile, const PagedKv& kv, const int32_t* pages, int32_t head, int32_t block, int32_t first,
                int32_t end) {
  const int64_t head_elements = int64_t{kv.page_tokens} * kv.head_dim;
  for (int32_t unit = 0; unit < block_keys / unit_keys; ++unit) {
    const int32_t key = block + unit * unit_keys;
    if (key >= end || key + unit_keys <= first) {
      for (int32_t i = 0; i < kv.head_dim; ++i)
        std::fill_n(tile.keys + i * block_keys + unit * unit_keys, unit_keys, 0.0F);
      std::fill_n(tile.values + unit * unit_keys * tile.dims, unit_keys * tile.dims, 0.0F);
      continue;
    }
    const std::byte* page = kv.pool + pages[key / kv.page_tokens] * kv.page_bytes + kv.layer_offset;
    const auto* k = reinterpret_cast<const Element*>(page) + head * head_elements;
    const int32_t slot = key % kv.page_tokens;
    load_unit(tile, unit, k + slot, k + kv.heads * head_elements + int64_t{slot} * kv.head_dim, kv);
  }
}

/// Asks for the memory of keys [block, block + block_keys) early: pages are too short for the processor to guess the
/// next.
void prefetch_block(const PagedKv& kv, const int32_t* pages, int32_t head, int32_t block, int32_t end) {
  const int64_t element = dtype_bytes(kv.dtype);
  const int64_t unit_bytes = unit_keys * kv.head_dim * element;
  const int64_t head_bytes = int64_t{kv.page_tokens} * kv.head_dim * element;
  for (int32_t key = block; key < std::min(end, block + block_keys); key += unit_keys) {
    const std::byte* page = kv.pool + pages[key / kv.page_tokens] * kv.page_bytes + kv.layer_offset;
    const std::byte* k = page + head * head_bytes;
    const std::byte* v = k + kv.heads * head_bytes;
    const int64_t begin = key % kv.page_tokens * kv.head_dim * element;
    for (int64_t at = begin; at < begin + unit_bytes; at += 64) {
      __builtin_prefetch(k + at, 0, 2);
      if (kv.latent_dim == 0) __builtin_prefetch(v + at, 0, 2);
    }
  }
}

/// scores[t] = q[t] . every key of the block
template <int rows>
void score(float* scores, const float* q, const float* keys, int32_t head_dim) {
  constexpr int vectors = block_keys / lanes;
  Floats sums[rows][vectors] = {};
  for (int32_t i = 0; i < head_dim; ++i) {
    for (int part = 0; part < vectors; ++part) {
      const Floats key = load(keys + i * block_keys + part * lanes);
      for (int t = 0; t < rows; ++t) sums[t][part] = fma(broadcast(q[t * head_dim + i]), key, sums[t][part]);
    }
  }
  for (int t = 0; t < rows; ++t) {
    for (int part = 0; part < vectors; ++part) store(scores + t * block_keys + part * lanes, sums[t][part]);
  }
}

/// sums[t] = sums[t] * rescale[t] + weights[t] . values, over keys [0, end), for `vectors` vectors of dims
template <int rows, int vectors>
void weigh(float* sums, const float* rescale, const float* weights, const float* values, int32_t dims, int32_t end) {
  Floats parts[rows][vectors];
  for (int t = 0; t < rows; ++t) {
    for (int part = 0; part < vectors; ++part) parts[t][part] = load(sums + t * dims + part * lanes) * rescale[t];
  }
  for (int32_t key = 0; key < end; ++key) {
    for (int part = 0; part < vectors; ++part) {
      const Floats value = load(values + key * dims + part * lanes);
      for (int t = 0; t < rows; ++t) {
        parts[t][part] = fma(broadcast(weights[t * block_keys + key]), value, parts[t][part]);
      }
    }
  }
  for (int t = 0; t < rows; ++t) {
    for (int part = 0; part < vectors; ++part) store(sums + t * dims + part * lanes, parts[t][part]);
  }
}

/// Scores of rows [row, tile.rows), `rows` at a time and the rest with fewer.
template <int rows>
void score_rows(Tile& tile, int32_t head_dim, int32_t row) {
  for (; row + rows <= tile.rows; row += rows) {
    score<rows>(tile.scores + row * block_keys, tile.q + row * head_dim, tile.keys, head_dim);
  }
  if constexpr (rows > 1) score_rows<rows - 1>(tile, head_dim, row);
}

template <int rows>
void weigh_rows(Tile& tile, int32_t end, int32_t row) {
  constexpr int vectors = 4;
  for (; row + rows <= tile.rows; row += rows) {
    const float* weights = tile.scores + row * block_keys;
    float* sums = tile.split + row * tile.dims;
    int32_t dim = 0;
    for (; dim + vectors * lanes <= tile.dims; dim += vectors * lanes) {
      weigh<rows, vectors>(sums + dim, tile.rescale + row, weights, tile.values + dim, tile.dims, end);
    }
    for (; dim < tile.dims; dim += lanes) {
      weigh<rows, 1>(sums + dim, tile.rescale + row, weights, tile.values + dim, tile.dims, end);
    }
  }
  if constexpr (rows > 1) weigh_rows<rows - 1>(tile, end, row);
}

/// Scores of a row become weights relative to its new maximum. The row sees keys [first, end) of the block.
void soften(Tile& tile, int32_t row, int32_t first, int32_t end, float softcap) {
  constexpr int vectors = block_keys / lanes;
  float* scores = tile.scores + row * block_keys;
  Floats parts[vectors];
  Floats best = broadcast(no_score);
  for (int part = 0; part < vectors; ++part) {
    parts[part] = load(scores + part * lanes);
    if (softcap > 0.0F) parts[part] = softcap * tanh(parts[part] / softcap);
    if (first > 0 || end < block_keys) {
      const Ints key = lane_numbers() + part * lanes;
      const Ints seen = (key >= first) & (key < end);
      parts[part] = seen ? parts[part] : broadcast(-__builtin_inff());
    }
    best = max(parts[part], best);
  }
  const float maximum = std::max(tile.split_max[row], largest(best));
  const float rescale = exp(broadcast(tile.split_max[row] - maximum))[0];
  Floats sums = load(tile.split_sum + row * lanes) * rescale;
  for (int part = 0; part < vectors; ++part) {
    const Floats weight = exp(parts[part] - maximum);
    store(scores + part * lanes, weight);
    sums += weight;
  }
  store(tile.split_sum + row * lanes, sums);
  tile.split_max[row] = maximum;
  tile.rescale[row] = rescale;
}

/// The sums of one more split are added to those of the splits before.
void merge(float* total, float& total_max, float& total_sum, const float* split, float split_max, float split_sum,
           int32_t dims) {
  const float maximum = std::max(total_max, split_max);
  const float old_scale = exp(broadcast(total_max - maximum))[0];
  const float new_scale = exp(broadcast(split_max - maximum))[0];
  for (int32_t i = 0; i < dims; i += lanes) {
    store(total + i, fma(load(split + i), broadcast(new_scale), load(total + i) * old_scale));
  }
  total_sum = total_sum * old_scale + split_sum * new_scale;
  total_max = maximum;
}

void write_result(float* out, const float* total, float total_sum, int32_t value_dim, float scale) {
  const float factor = total_sum == 0.0F ? 0.0F : scale / total_sum;
  map(out, total, value_dim, [&](Floats value) { return value * factor; });
}

void start_tile(Tile& tile, const Call& call, const Work& work) {
  const int32_t head_dim = call.kv.head_dim;
  tile.rows = work.rows;
  tile.dims = call.dims;
  for (int32_t row = 0; row < work.rows; ++row) {
    const int32_t token = call.start(work.segment) + (work.first_row + row) / call.group;
    const int32_t head = work.head * call.group + (work.first_row + row) % call.group;
    map(tile.q + row * head_dim, call.q.row<float>(token) + int64_t{head} * head_dim, head_dim,
        [&](Floats value) { return value * call.key_scale(work.head); });
    tile.first_key[row] = call.first_key(token);
    tile.end_key[row] = call.end_key(work.segment, token);
    tile.total_max[row] = call.first_max(head);
    tile.total_sum[row] = call.first_sum();
  }
  std::fill_n(tile.total, work.rows * call.dims, 0.0F);
}

/// Sums of keys [split, split + split_keys) for every row of the tile.
void do_split(Tile& tile, const Call& call, const Work& work, int32_t split) {
  std::fill_n(tile.split, tile.rows * tile.dims, 0.0F);
  std::fill_n(tile.split_sum, tile.rows * lanes, 0.0F);
  std::fill_n(tile.split_max, tile.rows, no_score);
  const int32_t first = *std::min_element(tile.first_key, tile.first_key + tile.rows);
  const int32_t last = *std::max_element(tile.end_key, tile.end_key + tile.rows);
  const int32_t end = std::min(last, split + split_keys);
  const int32_t* pages = call.kv.table.row<int32_t>(call.segments.rows.as<int32_t>()[work.segment]);
  for (int32_t block = std::max(split, first / block_keys * block_keys); block < end; block += block_keys) {
    if (call.kv.dtype == Dtype::f16) {
      load_block<uint16_t>(tile, call.kv, pages, work.head, block, first, end);
    } else if (call.kv.dtype == Dtype::f8) {
      load_block<uint8_t>(tile, call.kv, pages, work.head, block, first, end);
    } else {
      load_block<float>(tile, call.kv, pages, work.head, block, first, end);
    }
    prefetch_block(call.kv, pages, work.head, block + block_keys, end);
    score_rows<row_tile>(tile, call.kv.head_dim, 0);
    for (int32_t row = 0; row < tile.rows; ++row) {
      soften(tile, row, tile.first_key[row] - block, tile.end_key[row] - block, call.params.softcap);
    }
    weigh_rows<row_tile>(tile, std::min(block_keys, end - block), 0);
  }
}

/// [dims] sums, then their maximum and the sum of weights.
float* partial(const Call& call, int64_t row, int32_t split) {
  const Tensor& partials = call.scratch.partials;
  return partials.as<float>() + row * partials.strides[0] + split * partials.strides[1];
}

void do_work(Tile& tile, const Call& call, const Work& work) {
  start_tile(tile, call, work);
  for (int32_t split = work.first_split; split < work.end_split; ++split) {
    do_split(tile, call, work, split * split_keys);
    for (int32_t row = 0; row < tile.rows; ++row) {
      const float split_sum = sum(load(tile.split_sum + row * lanes));
      const float* sums = tile.split + row * tile.dims;
      if (!call.is_split(work.segment)) {
        merge(tile.total + row * tile.dims, tile.total_max[row], tile.total_sum[row], sums, tile.split_max[row],
              split_sum, tile.dims);
        continue;
      }
      const int32_t query_row = work.first_row + row;
      const int64_t token = call.start(work.segment) + query_row / call.group;
      const int64_t head = work.head * call.group + query_row % call.group;
      float* to = partial(call, token * call.params.heads + head, split);
      std::copy_n(sums, tile.dims, to);
      to[tile.dims] = tile.split_max[row];
      to[tile.dims + 1] = split_sum;
    }
  }
  if (call.is_split(work.segment)) return;
  for (int32_t row = 0; row < tile.rows; ++row) {
    const int32_t query_row = work.first_row + row;
    const int64_t token = call.start(work.segment) + query_row / call.group;
    const int64_t head = work.head * call.group + query_row % call.group;
    write_result(call.out.row<float>(token) + head * call.kv.value_dim(), tile.total + row * tile.dims,
                 tile.total_sum[row], call.kv.value_dim(), call.value_scale(work.head));
  }
}

/// Merges the splits of one query and head.
void merge_partials(const Call& call, int32_t segment, int32_t token, int32_t head) {
  alignas(64) float total[max_head_dim + 15] = {};
  float total_max = call.first_max(head);
  float total_sum = call.first_sum();
  const int64_t row = int64_t{token} * call.params.heads + head;
  for (int32_t split = call.first_split(segment); split < call.end_split(segment); ++split) {
    const float* part = partial(call, row, split);
    merge(total, total_max, total_sum, part, part[call.dims], part[call.dims + 1], call.dims);
  }
  write_result(call.out.row<float>(token) + int64_t{head} * call.kv.value_dim(), total, total_sum, call.kv.value_dim(),
               call.value_scale(head / call.group));
}

/// Numbers the units of work: kv head, then tile, then split. Returns how many there are.
int32_t number_work(const Call& call) {
  auto* first_items = call.scratch.first_items.as<int32_t>();
  const int32_t segments = call.segments.rows.dims[0];
  int32_t items = 0;
  for (int32_t segment = 0; segment < segments; ++segment) {
    first_items[segment] = items;
    if (call.tokens(segment) == 0) continue;
    const int32_t splits = call.by_splits() ? call.end_split(segment) - call.first_split(segment) : 1;
    items += call.kv.heads * call.tiles(segment) * splits;
  }
  first_items[segments] = items;
  return items;
}

Work work_of(const Call& call, int32_t item) {
  const auto* first_items = call.scratch.first_items.as<int32_t>();
  const int32_t* after = std::upper_bound(first_items, first_items + call.segments.starts.dims[0], item);
  const auto segment = static_cast<int32_t>(after - first_items) - 1;
  int32_t index = item - first_items[segment];
  const int32_t tiles = call.tiles(segment);
  const int32_t rows = call.tokens(segment) * call.group;
  Work work{};
  work.segment = segment;
  work.head = index % call.kv.heads;
  index /= call.kv.heads;
  // Late tiles see the most keys: they come first, so that no thread is left with a long one at the end.
  work.first_row = (tiles - 1 - index % tiles) * call.tile_rows;
  work.rows = std::min(call.tile_rows, rows - work.first_row);
  if (call.by_splits()) {
    work.first_split = call.first_split(segment) + index / tiles;
    work.end_split = work.first_split + 1;
  } else {
    const int32_t first_token = call.start(segment) + work.first_row / call.group;
    const int32_t last_token = call.start(segment) + (work.first_row + work.rows - 1) / call.group;
    work.first_split = call.first_key(first_token) / split_keys;
    work.end_split = (call.end_key(segment, last_token) + split_keys - 1) / split_keys;
  }
  return work;
}

/// Asks for the first keys of a unit of work while the one before it is done.
void prefetch_work(const Call& call, const Work& work) {
  const int32_t first_token = call.start(work.segment) + work.first_row / call.group;
  const int32_t last_token = call.start(work.segment) + (work.first_row + work.rows - 1) / call.group;
  const int32_t first = std::max(work.first_split * split_keys, call.first_key(first_token) / block_keys * block_keys);
  const int32_t* pages = call.kv.table.row<int32_t>(call.segments.rows.as<int32_t>()[work.segment]);
  prefetch_block(call.kv, pages, work.head, first, call.end_key(work.segment, last_token));
}

void attention_scratch(Queue /*queue*/, Tensor q, const PagedKv& kv, const Segments& segments,
                       const AttentionParams& params, int64_t& bytes) {
  const int64_t partials = int64_t{q.dims[0]} * params.heads * splits_of(q.dims[0], kv);
  bytes = first_item_bytes(segments.rows.dims[0]) + partials * partial_floats(kv) * dtype_bytes(Dtype::f32);
}

void attention(Queue queue, Tensor out, Tensor q, const PagedKv& kv, const Segments& segments,
               const AttentionParams& params, std::byte* memory) {
  const Scratch scratch = scratch_in(memory, q.dims[0], kv, segments.rows.dims[0], params.heads);
  const int32_t tile_rows = std::min(max_tile_rows, tile_floats / rounded(kv.head_dim));
  const Call call{out, q, kv, segments, params, scratch, params.heads / kv.heads, tile_rows, rounded(kv.value_dim())};
  auto& pool = *static_cast<ThreadPool*>(queue.native);
  const int32_t items = number_work(call);
  pool.parallel_for(items, 1, [&](int64_t begin, int64_t end) {
    Tile tile;
    for (auto item = static_cast<int32_t>(begin); item < end; ++item) {
      if (item + 1 < items) prefetch_work(call, work_of(call, item + 1));
      do_work(tile, call, work_of(call, item));
    }
  });
  bool any_split = false;
  for (int32_t segment = 0; segment < segments.rows.dims[0]; ++segment) {
    any_split |= call.tokens(segment) > 0 && call.is_split(segment);
  }
  if (!any_split) return;
  const int32_t tokens = segments.starts.as<int32_t>()[segments.rows.dims[0]];
  pool.parallel_for(int64_t{tokens} * params.heads, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto token = static_cast<int32_t>(i / params.heads);
      const auto* starts = segments.starts.as<int32_t>();
      const auto after = std::upper_bound(starts, starts + segments.starts.dims[0], token);
      const auto segment = static_cast<int32_t>(after - starts - 1);
      if (call.is_split(segment)) merge_partials(call, segment, token, static_cast<int32_t>(i % params.heads));
    }
  });
}

const bool added = kernels::attention.add(DeviceKind::cpu, Isa::QUERN_ISA, attention) &&
                   kernels::attention_scratch.add(DeviceKind::cpu, Isa::QUERN_ISA, attention_scratch);

}  // namespace
}  // namespace quern::QUERN_ISA
