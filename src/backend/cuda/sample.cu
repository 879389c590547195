#include "ops/sample.h"

#include "backend/cuda/launch.h"
#include "backend/cuda/sample_adjust.cuh"
#include "backend/cuda/sample_typical.cuh"
#include "backend/cuda/vectors.h"
#include "ops/philox.h"

namespace quern::cuda {
namespace {

constexpr int scan_threads = 256;
constexpr int rows_at_once = 256;  // more are done one after the other

/// Rows are read over the bus once. What the host wrote is there from the launch on, so that this need not wait.
__global__ void __launch_bounds__(scan_threads) fetch_rows(SampleBuffers buffers, int count) {
  allow_next();
  constexpr int words = sizeof(SampleRow) / 4;
  static_assert(words <= 32 && sizeof(SampleRow) % 4 == 0);
  const int row = static_cast<int>(blockIdx.x * (scan_threads / 32) + threadIdx.x / 32);
  const int word = static_cast<int>(threadIdx.x % 32);
  const bool mine = row < count && word < words;
  const uint32_t value = mine ? __ldcv(reinterpret_cast<const uint32_t*>(buffers.host_rows + row) + word) : 0;
  wait_for_previous();
  if (mine) reinterpret_cast<uint32_t*>(buffers.rows + row)[word] = value;
}

constexpr int loads = group_tokens / 32;  // of four logits, of each of the eight threads of a group

template <bool aligned>
__device__ __forceinline__ void load_logits(float (&values)[loads][4], const float* logits, int first, int vocab) {
#pragma unroll
  for (int j = 0; j < loads; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) values[j][i] = no_logit;
    const int token = first + 32 * j;
    if constexpr (aligned) {
      if (token < vocab) load_floats(values[j], logits + token);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (token + i < vocab) values[j][i] = logits[token + i];
      }
    }
  }
}

/// What a thread has of a chunk whose best logit is `best`.
__device__ __forceinline__ Chunk sum_up(const float (&values)[loads][4], int first, float best,
                                        const SampleRow& wanted) {
  const float inverse = 1.0F / wanted.temperature;
  const bool sums = !is_greedy(wanted) && wanted.forced < 0 && !adjusts(wanted);
  const bool raw_sums = wanted.logprobs >= 0;
  Chunk part{best, INT_MAX, 1, 0.0F, 0.0F};
#pragma unroll
  for (int j = loads - 1; j >= 0; --j) {
#pragma unroll
    for (int i = 3; i >= 0; --i) {
      if (values[j][i] == best) part.token = first + 32 * j + i;
      if (sums) part.sum += expf((values[j][i] - best) * inverse);
      if (raw_sums) part.raw_sum += expf(values[j][i] - best);
    }
  }
  return part;
}

/// Writes the sum of what the block's threads have of a chunk.
__device__ __forceinline__ void write_chunk(Chunk& to, Chunk part) {
  __shared__ Chunk parts[scan_threads / 32];
  part.token = __reduce_min_sync(0xFFFFFFFFU, part.token);
  part.sum = warp_sum(part.sum);
  part.raw_sum = warp_sum(part.raw_sum);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = part;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < scan_threads / 32; ++warp) {
    part.token = min(part.token, parts[warp].token);
    part.sum += parts[warp].sum;
    part.raw_sum += parts[warp].raw_sum;
  }
  to = part;
}

/// Eight threads for each group, a block for each chunk.
template <bool aligned>
__global__ void __launch_bounds__(scan_threads) scan(SampleBuffers buffers) {
  allow_next();
  const int chunk = static_cast<int>(blockIdx.x % buffers.chunks);
  const int64_t row = blockIdx.x / buffers.chunks;
  const int group = chunk * chunk_groups + static_cast<int>(threadIdx.x / 8);
  const int first = group * group_tokens + static_cast<int>(threadIdx.x % 8) * 4;
  float values[loads][4];
  wait_for_previous();
  load_logits<aligned>(values, buffers.logits + row * buffers.stride, first, buffers.vocab);

  float best = no_logit;
  bool finite = true;
#pragma unroll
  for (int j = 0; j < loads; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      finite = finite && (fabsf(values[j][i]) <= FLT_MAX || first + 32 * j + i >= buffers.vocab);
      best = fmaxf(best, values[j][i]);
    }
  }
  for (int step = 4; step > 0; step /= 2) best = fmaxf(best, __shfl_xor_sync(0xFFFFFFFFU, best, step));
  if (threadIdx.x % 8 == 0 && group < buffers.groups) buffers.bests[row * buffers.groups + group] = best;
  for (int step = 16; step > 4; step /= 2) best = fmaxf(best, __shfl_xor_sync(0xFFFFFFFFU, best, step));
  __shared__ float bests[scan_threads / 32];
  if (threadIdx.x % 32 == 0) bests[threadIdx.x / 32] = best;
  finite = __syncthreads_and(finite ? 1 : 0) != 0;
#pragma unroll
  for (int warp = 0; warp < scan_threads / 32; ++warp) best = fmaxf(best, bests[warp]);

  Chunk part = sum_up(values, first, best, buffers.rows[row]);
  part.finite = finite ? 1 : 0;
  write_chunk(buffers.parts[blockIdx.x], part);
}

/// In [0, 1), 53 random bits that depend on nothing else.
__device__ double uniform(uint64_t seed, int64_t position) {
  const auto place = static_cast<uint64_t>(position);
  const auto words = philox({static_cast<uint32_t>(place), static_cast<uint32_t>(place >> 32), 0, 0},
                            {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return static_cast<double>((uint64_t{words[0]} << 32 | words[1]) >> 11) * 0x1p-53;
}

/// The amount after which a draw of this share stops, counted from 1.
__device__ uint64_t goal_of(double share, uint64_t total) {
  const auto passed = static_cast<uint64_t>(share * static_cast<double>(total));
  return passed < total ? passed + 1 : total;
}

struct Best {
  float logit = no_logit;
  int token = -1;
  bool finite = true;
};

/// One row: its logits as they came, and those that are drawn from.
struct RowView {
  float* raw;
  const float* logits;
  const Chunk* parts;
  const float* bests;
  int vocab;
  int groups;
  int chunks;
};

__device__ Best best_of_chunks(const Chunk* parts, int chunks) {
  uint64_t key = 0;
  bool finite = true;
  for (int i = threadIdx.x % 32; i < chunks; i += 32) {
    const uint64_t other = order_key(parts[i].best, parts[i].token);
    key = other > key ? other : key;
    finite = finite && parts[i].finite != 0;
  }
  key = warp_max(key);
  finite = __all_sync(0xFFFFFFFFU, finite) != 0;
  return {0.0F, token_of_key(key), finite};
}

__device__ void load_bests(Workplace& w, const RowView& row) {
  __syncthreads();
  for (int g = threadIdx.x; g < row.groups; g += finish_threads) w.bests[g] = row.bests[g];
  __syncthreads();
}

/// The weights of a chunk.
__device__ uint64_t fixed_sum(const Chunk& part, Weigh weigh) {
  return __double2ull_rn(static_cast<double>(part.sum) * static_cast<double>(weigh(part.best)) * weight_one);
}

/// A draw from all tokens: the chunk first, if the first pass has summed chunks up.
__device__ int draw_from_all(Workplace& w, const RowView& row, Weigh weigh, double share, int best_token) {
  Range range{row.logits, 0, row.vocab};
  if (row.logits != row.raw) {
    const uint64_t total = sum_segments(w, range, weigh, {});
    return find_in_range(w, range, weigh, {}, goal_of(share, total));
  }
  clear_buckets(w);
  uint64_t amount = 0;
  if (threadIdx.x < static_cast<unsigned>(row.chunks)) {
    amount = fixed_sum(row.parts[threadIdx.x], weigh);
    w.low[threadIdx.x] = static_cast<uint32_t>(amount);
    w.high[threadIdx.x] = static_cast<uint32_t>(amount >> 32);
  }
  const uint64_t goal = goal_of(share, block_total(w, amount));
  const Found chunk = find_bucket(w, 0, goal, false);
  range.begin = chunk.bucket * chunk_tokens;
  range.end = min(range.begin + chunk_tokens, row.vocab);
  const uint64_t total = sum_segments(w, range, weigh, {});
  // Rounding may leave the chunk a little short of its part of the goal.
  const uint64_t rest = goal - chunk.before;
  if (total == 0) return best_token;
  return find_in_range(w, range, weigh, {}, rest < total ? rest : total);
}

/// Sum of all weights, with or without the help of the first pass.
__device__ uint64_t sum_of_all(Workplace& w, const RowView& row, Weigh weigh) {
  if (row.logits != row.raw) return sum_of_kept(w, {row.logits, row.vocab, -1}, weigh, {});
  uint64_t amount = 0;
  if (threadIdx.x < static_cast<unsigned>(row.chunks)) {
    amount = fixed_sum(row.parts[threadIdx.x], weigh);
  }
  return block_total(w, amount);
}

/// `best` is of the logits that are drawn from, and so are the bests of the groups in the workplace. `cut` becomes what
/// is drawn from of them, if not all.
__device__ int choose(Workplace& w, const RowView& row, const SampleRow& wanted, Best best, Cut& cut) {
  const Weigh weigh{best.logit, 1.0F / wanted.temperature};
  const double share = uniform(wanted.seed, wanted.position);
  const bool by_min_p = wanted.min_p > 0.0F;
  const bool by_top_k = wanted.top_k > 0 && wanted.top_k < row.vocab;
  const bool by_top_p = wanted.top_p < 1.0F;
  if (!by_min_p && !by_top_k && !by_top_p) return draw_from_all(w, row, weigh, share, best.token);

  // No logit below `floor` is kept; the list may hold a few more than are kept.
  float floor = no_logit;
  uint64_t total = 0;  // of what top_p looks at, 0: not known yet
  if (by_min_p) floor = best.logit + wanted.temperature * logf(fminf(wanted.min_p, 1.0F));
  if (by_top_k && wanted.top_k <= row.groups) floor = fmaxf(floor, best_of_rank(w, row.groups, wanted.top_k));
  if (!by_min_p && !by_top_k) {
    total = sum_of_all(w, row, weigh);
    // What all smaller weights sum up to is less than what top_p leaves away.
    const double smallest =
        (1.0 - static_cast<double>(fmaxf(wanted.top_p, 0.0F))) * static_cast<double>(total) / weight_one / row.vocab;
    floor = best.logit + wanted.temperature * logf(0.99F * static_cast<float>(smallest));
  }
  floor -= fabsf(best.logit) * 2.4e-7F + fabsf(floor) * 2.4e-7F;
  const Source source{row.logits, row.vocab, list_from(w, row.logits, row.vocab, row.groups, floor)};

  if (by_min_p) cut.weight = __float_as_uint(fminf(wanted.min_p, 1.0F));
  if (by_top_k) cut = find_cut(w, source, weigh, cut, static_cast<uint64_t>(wanted.top_k), false);
  if (by_top_p) {
    if (total == 0) total = sum_of_kept(w, source, weigh, cut);
    const double goal = ceil(static_cast<double>(wanted.top_p) * static_cast<double>(total));
    cut = find_cut(w, source, weigh, cut, goal < 1.0 ? 1 : static_cast<uint64_t>(goal), true);
  }
  if (source.listed < 0) {
    const Range range{row.logits, 0, row.vocab};
    const uint64_t kept = sum_segments(w, range, weigh, cut);
    return find_in_range(w, range, weigh, cut, goal_of(share, kept));
  }
  const uint64_t kept = sum_of_kept(w, source, weigh, cut);
  return find_token(w, source, goal_of(share, kept), [&](int token, float logit) {
    const float weight = weigh(logit);
    return cut.keeps(__float_as_uint(weight), token) ? fixed(weight) : 0;
  });
}

/// The logarithm of the sum of e^(x - maximum), in all threads.
__device__ double log_sum(Workplace& w, const RowView& row, float maximum) {
  double sum = 0;
  for (int i = threadIdx.x % 32; i < row.chunks; i += 32) {
    sum += static_cast<double>(row.parts[i].raw_sum) * static_cast<double>(expf(row.parts[i].best - maximum));
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
  __shared__ double shared;
  __syncthreads();
  if (threadIdx.x == 0) shared = log(sum);
  __syncthreads();
  return shared;
}

/// The token that follows all tokens of larger keys than `last`.
__device__ uint64_t next_best(Workplace& w, const RowView& row, uint64_t last) {
  uint64_t best = 0;
  for (int token = threadIdx.x; token < row.vocab; token += finish_threads) {
    const uint64_t key = order_key(row.raw[token], token);
    if (key < last && key > best) best = key;
  }
  best = warp_max(best);
  __syncthreads();
  if (threadIdx.x % 32 == 0) w.totals[threadIdx.x / 32] = best;
  __syncthreads();
  for (int warp = 0; warp < finish_threads / 32; ++warp) best = w.totals[warp] > best ? w.totals[warp] : best;
  return best;
}

/// How many logits are larger, in all threads.
__device__ int count_above(Workplace& w, const RowView& row, float logit) {
  uint64_t found = 0;
  for (int token = threadIdx.x; token < row.vocab; token += finish_threads) found += row.raw[token] > logit ? 1 : 0;
  return static_cast<int>(block_total(w, found));
}

/// Writes the `count` best tokens of the logits as they came, logprob(logit) of each.
template <typename Logprob>
__device__ void write_top(Workplace& w, const RowView& row, int count, Sampled& result, Logprob&& logprob) {
  load_bests(w, row);
  const float floor = count <= row.groups ? best_of_rank(w, row.groups, count) : no_logit;
  const int listed = list_from(w, row.raw, row.vocab, row.groups, floor);
  for (int i = threadIdx.x; i < listed; i += finish_threads) {
    const uint64_t mine = order_key(w.list[i].logit, w.list[i].token);
    int place = 0;
    for (int other = 0; other < listed && place < count; ++other) {
      place += order_key(w.list[other].logit, w.list[other].token) > mine ? 1 : 0;
    }
    if (place < count) result.top[static_cast<size_t>(place)] = {w.list[i].token, logprob(w.list[i].logit)};
  }
  if (listed >= 0) return;
  uint64_t last = ~uint64_t{0};
  for (int place = 0; place < count; ++place) {
    last = next_best(w, row, last);
    const int token = token_of_key(last);
    if (threadIdx.x == 0) result.top[static_cast<size_t>(place)] = {token, logprob(row.raw[token])};
  }
}

/// Of a copy: its best token, and the bests of its groups for the workplace.
__device__ Best best_of_copy(Workplace& w, const RowView& row) {
  const uint64_t key = find_bests(w, row.logits, row.vocab, row.groups);
  if (key == 0) return {};
  const int token = token_of_key(key);
  return {row.logits[token], token, true};
}

/// Writes the logits that were drawn from over those that came, once all have been read.
__device__ void write_processed(const RowView& row, float temperature, Weigh weigh, Cut cut) {
  __syncthreads();
  for (int token = threadIdx.x; token < row.vocab; token += finish_threads) {
    const float logit = row.logits[token];
    const bool kept = cut.weight == 0 || cut.keeps(__float_as_uint(weigh(logit)), token);
    row.raw[token] = kept ? logit / temperature : no_logit;
  }
}

/// The token of a row, or -1 where nothing is allowed.
__device__ int token_of_row(Workplace& w, RowView& row, SampleRow wanted, Best best, float* copy) {
  if (wanted.forced >= 0) return wanted.forced;
  if (adjusts(wanted)) {
    adjust(w, copy, row.raw, row.vocab, wanted);
    row.logits = copy;
    best = best_of_copy(w, row);
    if (best.token < 0) return -1;
  } else if (!is_greedy(wanted)) {
    load_bests(w, row);
  }
  if (is_greedy(wanted)) {
    if (wanted.processed) write_processed(row, 1.0F, {}, {});
    return best.token;
  }
  if (wanted.typical_p < 1.0F) {
    cut_untypical(w, copy, row.vocab, wanted, best.logit);
    wanted.min_p = 0.0F;
    wanted.top_k = 0;
    best = best_of_copy(w, row);
  }
  Cut cut;
  const int token = choose(w, row, wanted, best, cut);
  if (wanted.processed) write_processed(row, wanted.temperature, {best.logit, 1.0F / wanted.temperature}, cut);
  return token;
}

__global__ void __launch_bounds__(finish_threads) finish(SampleBuffers buffers) {
  allow_next();
  extern __shared__ __align__(16) std::byte shared_memory[];
  Workplace& w = *reinterpret_cast<Workplace*>(shared_memory);
  const int64_t r = blockIdx.x;
  wait_for_previous();
  const SampleRow wanted = buffers.rows[r];
  float* const raw = buffers.logits + r * buffers.stride;
  RowView row{raw,
              raw,
              buffers.parts + r * buffers.chunks,
              buffers.bests + r * buffers.groups,
              buffers.vocab,
              buffers.groups,
              buffers.chunks};
  Sampled& result = buffers.results[r];
  Best best = best_of_chunks(row.parts, row.chunks);
  auto status = SampleStatus::not_finite;
  int token = -1;
  if (best.finite) {
    best.logit = raw[best.token];
    token = token_of_row(w, row, wanted, best, buffers.copies + r * buffers.vocab);
    status = token < 0 ? SampleStatus::nothing_allowed : SampleStatus::ok;
  }
  float chosen = 0.0F;
  int rank = 0;
  int top_count = 0;
  if (token >= 0 && wanted.logprobs >= 0) {
    const double normalizer = log_sum(w, row, best.logit);
    const auto logprob = [&](float logit) {
      return static_cast<float>(static_cast<double>(logit - best.logit) - normalizer);
    };
    chosen = logprob(raw[token]);
    if (wanted.forced >= 0) rank = 1 + count_above(w, row, raw[token]);
    top_count = min(wanted.logprobs, row.vocab);
    if (top_count > 0) write_top(w, row, top_count, result, logprob);
  }
  if (threadIdx.x != 0) return;
  if (wanted.next >= 0) buffers.next[wanted.next] = token;
  result.token = token;
  result.status = status;
  result.logprob = chosen;
  result.rank = rank;
  result.top_count = top_count;
}

/// Takes memory piece by piece; with a null base it only counts.
struct Places {
  std::byte* base;
  int64_t used = 0;
  template <typename T>
  T* take(int64_t count) {
    auto* const place = reinterpret_cast<T*>(base + used);
    used += (count * static_cast<int64_t>(sizeof(T)) + 127) / 128 * 128;
    return place;
  }
};

int64_t place_buffers(SampleBuffers& buffers, std::byte* scratch, int32_t rows, int32_t vocab) {
  buffers.vocab = vocab;
  buffers.groups = (vocab + group_tokens - 1) / group_tokens;
  buffers.chunks = (vocab + chunk_tokens - 1) / chunk_tokens;
  CHECK(buffers.groups <= max_groups);
  const int64_t at_once = rows < rows_at_once ? rows : rows_at_once;
  Places places{scratch};
  buffers.rows = places.take<SampleRow>(at_once);
  buffers.parts = places.take<Chunk>(at_once * buffers.chunks);
  buffers.bests = places.take<float>(at_once * buffers.groups);
  buffers.copies = places.take<float>(at_once * vocab);
  return places.used;
}

void sample_scratch(Queue /*queue*/, int32_t rows, int32_t vocab, int64_t& bytes) {
  SampleBuffers buffers;
  bytes = place_buffers(buffers, nullptr, rows, vocab);
}

void sample(Queue queue, Tensor logits, std::span<const SampleRow> rows, std::span<Sampled> results, Tensor next,
            std::byte* scratch) {
  static const bool allowed = allow_shared(finish, sizeof(Workplace));
  CHECK(allowed);
  SampleBuffers buffers;
  place_buffers(buffers, scratch, logits.dims[0], logits.dims[1]);
  buffers.stride = logits.strides[0];
  buffers.next = next ? next.as<int32_t>() : nullptr;
  const auto kernel = logits.dims[1] % 4 == 0 && aligned_rows({logits}) ? scan<true> : scan<false>;
  for (int32_t first = 0; first < logits.dims[0]; first += rows_at_once) {
    const int32_t count = logits.dims[0] - first < rows_at_once ? logits.dims[0] - first : rows_at_once;
    buffers.logits = logits.row<float>(first);
    buffers.host_rows = rows.data() + first;
    buffers.results = results.data() + first;
    constexpr int warps = scan_threads / 32;
    launch(queue, fetch_rows, static_cast<unsigned>((count + warps - 1) / warps), scan_threads, 0, buffers, count);
    launch(queue, kernel, static_cast<unsigned>(count * buffers.chunks), scan_threads, 0, buffers);
    launch(queue, finish, static_cast<unsigned>(count), finish_threads, sizeof(Workplace), buffers);
  }
}

const bool scratch_added = kernels::sample_scratch.add(DeviceKind::cuda, sample_scratch);
const bool added = kernels::sample.add(DeviceKind::cuda, sample);

}  // namespace
}  // namespace quern::cuda
