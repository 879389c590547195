// The kernel of linear_skinny.h. A block has eight warps and takes tiles of 16 * row_groups rows in turn. The warps of
// a row group take turns with the units of its columns; their sums are added in a fixed order. Blocks of a cluster
// share the columns of a tile, again added in a fixed order. So a token's result depends on the layout of this work and
// not on the number of tokens.
//
// The rows of a weight are the rows of the matrix unit's first operand and tokens the columns of the second. Columns of
// the weight are permuted so that a lane reads 16 bytes at a time; x is read from shared memory with the same
// permutation.
#pragma once

#include <cooperative_groups.h>

#include "backend/cuda/linear_skinny.h"
#include "backend/cuda/linear_unpack.cuh"

namespace quern::cuda {

/// What this warp has to read, in order: unit after unit, tile after tile.
template <typename Format, typename T, int RowTiles>
class SkinnyReader {
 public:
  using Unit = typename UnitOf<Format, T>::type;

  __device__ SkinnyReader(const SkinnyJob& job, int tile, int tile_step, int first_unit, int unit_step, int units)
      : job_(job), tile_(tile), tile_step_(tile_step), first_unit_(first_unit), unit_step_(unit_step), units_(units) {
    aim();
  }

  /// Fetches the next units, one for each tile of rows, if there are.
  __device__ __forceinline__ void fetch_next(std::byte* slot) {
    const int begin = step_ * unit_step_;
    if (begin < units_) fetch_units(slot, first_unit_ + begin);
    advance();
  }

 private:
  static __device__ __forceinline__ int lane() { return threadIdx.x % 32; }

  __device__ __forceinline__ void fetch_units(std::byte* slot, int number) const {
#pragma unroll
    for (int r = 0; r < RowTiles; ++r) {
      std::byte* const to = slot + r * Unit::slot_bytes;
      if constexpr (in_rows<Format>) {
        fetch_from_rows<Format, Unit>(to, rows_[r], number, job_.cols);
      } else {
        using P = Packed<Format>;
        const std::byte* const panel = rows_[r][0];
        const std::byte* const record = panel + headers_bytes<Format>(job_.cols) + int64_t{number} * P::record_bytes;
        Unit::fetch_to(to, record, panel + number / 2 * panel_height * P::header, lane());
      }
    }
  }

  __device__ __forceinline__ void advance() {
    if (++step_ < job_.steps) return;
    step_ = 0;
    tile_ += tile_step_;
    aim();
  }

  /// rows_: of formats in rows those of this lane, else the panels.
  __device__ __forceinline__ void aim() {
    if (tile_ >= job_.tiles_end[job_.parts - 1]) {
      units_ = 0;
      return;
    }
    int part = 0;
    while (tile_ >= job_.tiles_end[part]) ++part;
    const int first_tile = part == 0 ? 0 : job_.tiles_end[part - 1];
    const int group = threadIdx.x / 32 * job_.row_groups / skinny_warps;
    const int64_t bytes = panel_bytes<Format>(job_.cols);
    const int last = job_.rows[part] - 1;
#pragma unroll
    for (int r = 0; r < RowTiles; ++r) {
      const int row = (((tile_ - first_tile) * RowTiles + r) * job_.row_groups + group) * panel_height;
      if constexpr (in_rows<Format>) {
        rows_[r][0] = job_.data[part] + min(row + lane() / 4, last) * bytes;
        rows_[r][1] = job_.data[part] + min(row + 8 + lane() / 4, last) * bytes;
      } else {
        rows_[r][0] = job_.data[part] + min(row, last) / panel_height * bytes;
      }
    }
  }

  const SkinnyJob& job_;
  int tile_;
  int tile_step_;
  int first_unit_;
  int unit_step_;
  int units_;  // from first_unit_ on that are in this block's share
  int step_ = 0;
  const std::byte* rows_[RowTiles][in_rows<Format> ? 2 : 1];
};

__device__ __forceinline__ void prefetch_to_l2(const std::byte* p, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
#endif
}

/// Asks for units [begin, end) of the block's first tile, or for as many as it should have on the way.
template <typename Format, int RowTiles>
__device__ void prefetch_tile(const SkinnyJob& job, int tile, int begin, int end) {
  constexpr int most_bytes = 64 << 10;
  const int panels = job.row_groups * RowTiles;
  const int pieces = in_rows<Format> ? panel_height * panels : panels;  // each of adjacent memory
  const int piece = threadIdx.x;
  if (piece >= pieces || begin >= end) return;
  int part = 0;
  while (tile >= job.tiles_end[part]) ++part;
  const int first_tile = part == 0 ? 0 : job.tiles_end[part - 1];
  const int row = (tile - first_tile) * panels * panel_height + piece * (in_rows<Format> ? 1 : panel_height);
  if (row >= job.rows[part]) return;
  const std::byte* from = job.data[part];
  int64_t bytes = 0;
  if constexpr (in_rows<Format>) {
    from += row * panel_bytes<Format>(job.cols) + int64_t{begin} * 128;
    bytes = min(int64_t{end} * 128, panel_bytes<Format>(job.cols)) - int64_t{begin} * 128;
  } else {
    from += row / panel_height * panel_bytes<Format>(job.cols) + headers_bytes<Format>(job.cols) +
            int64_t{begin} * Packed<Format>::record_bytes;
    bytes = int64_t{end - begin} * Packed<Format>::record_bytes;
  }
  prefetch_to_l2(from, static_cast<int>(min(bytes, int64_t{most_bytes / pieces})));
}

/// Copies columns [first, first + columns) of all tokens to shared memory; what is beyond the last column is zeros.
/// Asynchronous where x is aligned.
template <typename T>
__device__ __forceinline__ void stage_x(const SkinnyJob& job, std::byte* to, int first, int columns) {
  const T* const x = static_cast<const T*>(job.x);
  const int pieces = columns / 8;
  int token = 0;
  int piece = threadIdx.x;
  while (true) {
    while (piece >= pieces) {
      piece -= pieces;
      ++token;
    }
    if (token >= job.tokens) return;
    std::byte* const target = to + token * job.x_pitch + 16 * piece;
    const int column = first + 8 * piece;
    const T* const source = x + token * job.x_stride + column;
    if (column >= job.cols) {
      *reinterpret_cast<uint4*>(target) = uint4{0, 0, 0, 0};
    } else if (job.x_aligned) {
      fetch<16>(target, reinterpret_cast<const std::byte*>(source));
    } else {
      for (int i = 0; i < 8; ++i) reinterpret_cast<T*>(target)[i] = source[i];
    }
    piece += blockDim.x;
  }
}

/// Eight columns of a token, in the order of a lane's fragments.
template <typename Format>
__device__ __forceinline__ uint4 take_x(const std::byte* block, int quarter) {
  if constexpr (!in_rows<Format>) {
    if constexpr (Packed<Format>::narrow) {
      const uint2 first = *reinterpret_cast<const uint2*>(block + 8 * quarter);
      const uint2 second = *reinterpret_cast<const uint2*>(block + 32 + 8 * quarter);
      return {first.x, first.y, second.x, second.y};
    }
  }
  return *reinterpret_cast<const uint4*>(block + 16 * quarter);
}

/// sums += w b
template <typename T>
__device__ __forceinline__ void add_products(float (&sums)[4], const Fragments& w, const uint4& b) {
  multiply<T>(sums, w.a[0][0], w.a[1][0], w.a[0][1], w.a[1][1], b.x, b.y);
  multiply<T>(sums, w.a[0][2], w.a[1][2], w.a[0][3], w.a[1][3], b.z, b.w);
}

/// The same with factors of the two rows.
template <typename T>
__device__ __forceinline__ void add_products(float (&sums)[4], const Fragments& w, const float (&scale)[2],
                                             const uint4& b) {
  float products[4] = {};
  add_products<T>(products, w, b);
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] += scale[i / 2] * products[i];
}

/// The same of levels; `totals` are sums of x.
template <typename Format, typename T>
__device__ __forceinline__ void add_scaled(float (&sums)[4], const Fragments& w, const Factors& factors, const uint4& b,
                                           const float (&totals)[4]) {
  float products[4] = {};
  if constexpr (Packed<Format>::narrow) {
    float others[4] = {};
    multiply<T>(products, w.a[0][0], w.a[1][0], w.a[0][1], w.a[1][1], b.x, b.y);
    multiply<T>(others, w.a[0][2], w.a[1][2], w.a[0][3], w.a[1][3], b.z, b.w);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[i] += factors.scale[i / 2][0] * products[i];
      sums[i] += factors.scale[i / 2][1] * others[i];
    }
  } else {
    add_products<T>(products, w, b);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[i] += factors.scale[i / 2][0] * products[i];
      if constexpr (has_minimum<Format>) sums[i] += factors.minimum[i / 2] * totals[i];
    }
  }
}

/// sums += a part of units, one for each tile of 16 rows, times x, whose columns begin at `x`; `tokens` are the offsets
/// of this lane's tokens.
template <typename Format, typename T, int TokenTiles, int RowTiles, typename Unit>
__device__ __forceinline__ void use(float (&sums)[RowTiles][TokenTiles][4], const Unit (&units)[RowTiles], int part,
                                    const std::byte* x, const int (&tokens)[TokenTiles]) {
  const int lane = threadIdx.x % 32;
  constexpr int blocks = Unit::columns / Unit::parts / 32;
#pragma unroll
  for (int block = 0; block < blocks; ++block) {
    Fragments w[RowTiles];
    [[maybe_unused]] Factors factors[RowTiles];
#pragma unroll
    for (int r = 0; r < RowTiles; ++r) {
      if constexpr (in_rows<Format>) {
        w[r] = units[r].fragments(part, block);
      } else {
        w[r] = units[r].fragments(block);
        factors[r] = units[r].factors(block, lane);
      }
    }
#pragma unroll
    for (int n = 0; n < TokenTiles; ++n) {
      const uint4 b = take_x<Format>(x + tokens[n] + 64 * (blocks * part + block), lane % 4);
      [[maybe_unused]] float totals[4] = {};
      if constexpr (has_minimum<Format>) {
        constexpr uint32_t one = Magic<T>::one;
        multiply<T>(totals, one, one, one, one, b.x, b.y);
        multiply<T>(totals, one, one, one, one, b.z, b.w);
      }
#pragma unroll
      for (int r = 0; r < RowTiles; ++r) {
        if constexpr (!in_rows<Format>) {
          add_scaled<Format, T>(sums[r][n], w[r], factors[r], b, totals);
        } else if constexpr (Format::scale_bytes > 0) {
          add_products<T>(sums[r][n], w[r], units[r].scale, b);
        } else {
          add_products<T>(sums[r][n], w[r], b);
        }
      }
    }
  }
}

/// The same of all parts.
template <typename Format, typename T, int TokenTiles, int RowTiles, typename Unit>
__device__ __forceinline__ void use_all(float (&sums)[RowTiles][TokenTiles][4], const Unit (&units)[RowTiles],
                                        const std::byte* x, const int (&tokens)[TokenTiles]) {
#pragma unroll
  for (int part = 0; part < Unit::parts; ++part) use<Format, T, TokenTiles, RowTiles>(sums, units, part, x, tokens);
}

/// Units that wait in shared memory, one behind the other.
template <int RowTiles, typename Unit>
__device__ __forceinline__ void take_all(Unit (&units)[RowTiles], const std::byte* slots) {
#pragma unroll
  for (int r = 0; r < RowTiles; ++r) units[r].take(slots + r * Unit::slot_bytes, threadIdx.x % 32);
}

/// The same of one tile of rows.
template <typename Format, typename T, int TokenTiles, typename Unit>
__device__ __forceinline__ void use(float (&sums)[TokenTiles][4], const Unit& unit, int part, const std::byte* x,
                                    const int (&tokens)[TokenTiles]) {
  use<Format, T, TokenTiles, 1>(reinterpret_cast<float(&)[1][TokenTiles][4]>(sums),
                                reinterpret_cast<const Unit(&)[1]>(unit), part, x, tokens);
}

/// One tile of 16 rows of each warp in a tile.
struct Slice {
  int tile;
  int row_tile;
  int row_tiles;
};

/// Writes, or adds to, one result.
template <typename T>
__device__ __forceinline__ void put(const SkinnyJob& job, Slice slice, int row_in_slice, int token, float sum) {
  int part = 0;
  while (slice.tile >= job.tiles_end[part]) ++part;
  const int first_tile = part == 0 ? 0 : job.tiles_end[part - 1];
  const int number = (slice.tile - first_tile) * slice.row_tiles + slice.row_tile;
  const int row = number * job.row_groups * panel_height + row_in_slice;
  if (row >= job.rows[part]) return;
  const int column = job.first_row[part] + row;
  if (job.scale != nullptr) sum *= job.scale[column];
  if (job.bias != nullptr) sum += job.bias[column];
  const int64_t at = token * job.y_stride + column;
  if (job.result != Dtype::f32) {
    static_cast<T*>(job.y)[at] = from_float<T>(sum);
  } else {
    float* const y = static_cast<float*>(job.y) + at;
    *y = job.accumulate ? *y + sum : sum;
  }
}

/// Adds the sums of the warps of each row group, then those of the cluster's blocks, and puts them out.
template <typename T, int TokenTiles>
__device__ __forceinline__ void finish_slice(const SkinnyJob& job, const float (&sums)[TokenTiles][4], float* shared,
                                             Slice slice, int rank, int ranks) {
  constexpr int warp_floats = 8 * TokenTiles * sums_pitch;
  const int lane = threadIdx.x % 32;
  float* const mine = shared + threadIdx.x / 32 * warp_floats + 2 * (lane % 4) * sums_pitch + lane / 4;
#pragma unroll
  for (int n = 0; n < TokenTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) mine[(8 * n + i % 2) * sums_pitch + 8 * (i / 2)] = sums[n][i];
  }
  __syncthreads();
  const int warps = skinny_warps / job.row_groups;
  const int rows = panel_height * job.row_groups;
  const auto place = [&](int element) {
    const int row = element % rows;
    return row / panel_height * warps * warp_floats + element / rows * sums_pitch + row % panel_height;
  };
  const int elements = rows * job.tokens;
  for (int element = threadIdx.x; element < elements; element += blockDim.x) {
    float* const at = shared + place(element);
    float sum = at[0];
    for (int warp = 1; warp < warps; ++warp) sum += at[warp * warp_floats];
    if (ranks == 1)
      put<T>(job, slice, element % rows, element / rows, sum);
    else
      at[0] = sum;
  }
#if __CUDA_ARCH__ >= 900
  if (ranks > 1) {
    const auto cluster = cooperative_groups::this_cluster();
    cluster.sync();
    for (int element = rank * blockDim.x + threadIdx.x; element < elements; element += ranks * blockDim.x) {
      float* const at = shared + place(element);
      float sum = 0.0F;
      for (int other = 0; other < ranks; ++other) sum += *cluster.map_shared_rank(at, other);
      put<T>(job, slice, element % rows, element / rows, sum);
    }
    cluster.sync();
    return;
  }
#endif
  if constexpr (sums_buffers(TokenTiles) == 1) __syncthreads();
}

/// What a block works on.
struct SkinnyPlace {
  int tile;  // the first one
  int tile_step;
  int begin;  // of the units
  int end;
  int turn;  // of the warp among those of its rows
  int turns;
  int rank;
  int ranks;
};

/// Waits until the next buffer of x is there, after which so many groups of fetches came, and the other one is free.
template <int ahead>
__device__ __forceinline__ void wait_for_x(int groups) {
  if (groups >= ahead)
    wait_for_fetches<ahead - 1>();
  else
    wait_for_fetches<0>();
  __syncthreads();
}

/// Unit after unit, tile after tile; x comes in chunks of columns.
template <typename Format, typename T, int TokenTiles, int RowTiles, typename Reader>
__device__ __forceinline__ void multiply_tiles(const SkinnyJob& job, const SkinnyPlace& at, Reader& reader,
                                               std::byte* shared, std::byte* slots) {
  using Unit = typename Reader::Unit;
  constexpr int ahead = units_ahead<Format>(TokenTiles);
  constexpr int slot_bytes = RowTiles * Unit::slot_bytes;
  std::byte* const x = shared + sums_bytes(TokenTiles) + skinny_warps * ahead * slot_bytes;
  const int buffer_bytes = job.tokens * job.x_pitch;
  const int chunk_columns = job.chunk_steps * at.turns * Unit::columns;
  int tokens[TokenTiles];
#pragma unroll
  for (int n = 0; n < TokenTiles; ++n) {
    tokens[n] = min(8 * n + static_cast<int>(threadIdx.x) % 32 / 4, job.tokens - 1) * job.x_pitch;
  }
  stage_x<T>(job, x, at.begin * Unit::columns, chunk_columns);
  close_fetches();
  wait_for_fetches<0>();
  __syncthreads();
  int buffer = 0;
  int slot = 0;
  int groups = ahead;  // since this buffer of x was fetched
  float* block_sums = reinterpret_cast<float*>(shared);
  float* other_sums = block_sums + (sums_buffers(TokenTiles) - 1) * sums_floats(TokenTiles);
  for (int tile = at.tile; tile < job.tiles_end[job.parts - 1]; tile += at.tile_step) {
    float sums[RowTiles][TokenTiles][4] = {};
    for (int step = 0; step < job.steps;) {
      const int last = min(job.steps, step + job.chunk_steps);
      if (job.x_buffers == 2) {
        wait_for_x<ahead>(groups);
        const int next = last == job.steps ? 0 : last;
        stage_x<T>(job, x + (buffer ^ 1) * buffer_bytes, (at.begin + next * at.turns) * Unit::columns, chunk_columns);
      }
      groups = last - step;
      const std::byte* columns = x + buffer * buffer_bytes + at.turn * Unit::columns * 2;
      for (; step < last; ++step) {
        wait_for_fetches<ahead - 1>();
        if (at.turn + step * at.turns < at.end - at.begin) {
          Unit units[RowTiles];
          take_all(units, slots + slot);
          use_all<Format, T>(sums, units, columns, tokens);
        }
        reader.fetch_next(slots + slot);
        close_fetches();
        slot = slot + slot_bytes == ahead * slot_bytes ? 0 : slot + slot_bytes;
        columns += at.turns * Unit::columns * 2;
      }
      if (job.x_buffers == 2) buffer ^= 1;
    }
#pragma unroll
    for (int r = 0; r < RowTiles; ++r) {
      finish_slice<T, TokenTiles>(job, sums[r], block_sums, {tile, r, RowTiles}, at.rank, at.ranks);
      float* const next_sums = other_sums;
      other_sums = block_sums;
      block_sums = next_sums;
    }
  }
}

template <typename Format, typename T, int TokenTiles>
__global__ void __launch_bounds__(32 * skinny_warps, skinny_residents(TokenTiles))
    skinny(const __grid_constant__ SkinnyJob job, int ranks) {
  constexpr int RowTiles = row_tiles(TokenTiles);
  using Reader = SkinnyReader<Format, T, RowTiles>;
  using Unit = typename Reader::Unit;
  constexpr int ahead = units_ahead<Format>(TokenTiles);
  static_assert(Unit::slot_bytes == unit_bytes<Format>());
  extern __shared__ __align__(128) std::byte shared[];
  allow_next();

  // Warps of a row group take its units in turn; the blocks of a cluster have a range of units each.
  const int turns = skinny_warps / job.row_groups;
  const int turn = threadIdx.x / 32 % turns;
  const int rank = blockIdx.x % ranks;
  const int first_tile = blockIdx.x / ranks;
  const int tile_step = gridDim.x / ranks;
  const int begin = rank * job.share;
  const int end = min(begin + job.share, (job.cols + Unit::columns - 1) / Unit::columns);
  constexpr int slot_bytes = RowTiles * Unit::slot_bytes;
  std::byte* const slots = shared + sums_bytes(TokenTiles) + threadIdx.x / 32 * (ahead * slot_bytes);
  Reader reader(job, first_tile, tile_step, begin + turn, turns, end - begin - turn);
#pragma unroll
  for (int i = 0; i < ahead; ++i) {
    reader.fetch_next(slots + i * slot_bytes);
    close_fetches();
  }
  prefetch_tile<Format, RowTiles>(job, first_tile, begin + ahead * turns, end);

  wait_for_previous();
  const SkinnyPlace place{first_tile, tile_step, begin, end, turn, turns, rank, ranks};
  multiply_tiles<Format, T, TokenTiles, RowTiles>(job, place, reader, shared, slots);
}

template <typename Format, typename T, int TokenTiles>
void launch_tiles(const Queue& queue, const SkinnyJob& job, const SkinnyLaunch& shape) {
  constexpr int most_shared = 200 << 10;
  static const bool allowed = allow_shared(skinny<Format, T, TokenTiles>, most_shared);
  CHECK(allowed && shape.shared_bytes <= most_shared);
  const auto shared_bytes = static_cast<size_t>(shape.shared_bytes);
  launch_blocks(
      queue, skinny<Format, T, TokenTiles>,
      {static_cast<unsigned>(shape.blocks), 32 * skinny_warps, shared_bytes, static_cast<unsigned>(shape.cluster)}, job,
      shape.cluster);
}

template <typename Format, typename T>
void launch_skinny(const Queue& queue, const SkinnyJob& job, const SkinnyLaunch& shape) {
  if (job.tokens <= 8) return launch_tiles<Format, T, 1>(queue, job, shape);
  if (job.tokens <= 16) return launch_tiles<Format, T, 2>(queue, job, shape);
  if (job.tokens <= 32) return launch_tiles<Format, T, 4>(queue, job, shape);
  launch_tiles<Format, T, 8>(queue, job, shape);
}

}  // namespace quern::cuda
