// The kernel of linear_one.h. A block stays on each SM; its warps take groups of neighbouring rows in turn, the next
// rows under way while the last ones are added up. Nothing but x is shared, so that warps do not wait for each other.
//
// Matrix units multiply, with sums in float: lane 4 g + t brings 16 bytes of a row as row g of the first operand and of
// x as column g of the second one, so that the diagonal of the result has the sums of all lanes. Rows 8 to 15 are
// another row of the group.
#pragma once

#include "backend/cuda/linear_one.h"
#include "backend/cuda/linear_skinny.cuh"
#include "backend/cuda/vectors.h"

namespace quern::cuda {

/// What matrix units multiply.
template <typename Format, typename T>
using OneMultiplied = std::conditional_t<is_f8<Format>, Half, T>;

/// x in shared memory, in the order of the lanes that multiply it.
template <typename Format, typename T>
class OneInput {
 public:
  __device__ OneInput(const OneJob& job, std::byte* to, int pieces)
      : job_(job), to_(to), eights_(pieces * one_x_piece<Format> / 16) {}

  /// All threads: brings x; returns what products have to be multiplied with.
  __device__ __forceinline__ float bring() const {
    constexpr int at_once = 4;  // so that they are on their way together
    float most = 0.0F;
    for (int first = static_cast<int>(threadIdx.x); first < eights_; first += at_once * threads) {
      uint4 raw[at_once];
#pragma unroll
      for (int j = 0; j < at_once; ++j) raw[j] = load(first + j * threads);
#pragma unroll
      for (int j = 0; j < at_once; ++j) {
        if (first + j * threads < eights_) put(raw[j], first + j * threads, most);
      }
    }
    if constexpr (is_f8<Format> && !std::is_same_v<T, Half>) return make_halves(most);
    return 1.0F;
  }

 private:
  static constexpr int threads = 32 * one_warps;

  /// Eight columns; zeros behind the last one.
  __device__ __forceinline__ uint4 load(int eight) const {
    const int column = 8 * eight;
    const T* const x = static_cast<const T*>(job_.x) + column;
    if (column + 8 <= job_.cols && job_.x_aligned) return *reinterpret_cast<const uint4*>(x);
    Packet<T, 8> values;
#pragma unroll
    for (int i = 0; i < 8; ++i) values.v[i] = column + i < job_.cols ? x[i] : from_float<T>(0.0F);
    return *reinterpret_cast<const uint4*>(&values);
  }

  /// Of 8-bit floats, a lane's 16 columns are in two planes of a piece, each four in the order of f8_place().
  static __device__ __forceinline__ int place(int eight) {
    if constexpr (!is_f8<Format>) return 16 * eight;
    return eight / 64 * 1024 + eight % 8 / 4 * 512 + (eight % 64 / 8 * 4 + eight % 4) * 16;
  }

  __device__ __forceinline__ void put(const uint4& raw, int eight, float& most) const {
    uint4 ordered = raw;
    if constexpr (is_f8<Format>) {
      ordered = {__byte_perm(raw.x, raw.y, 0x1054), __byte_perm(raw.x, raw.y, 0x3276),
                 __byte_perm(raw.z, raw.w, 0x1054), __byte_perm(raw.z, raw.w, 0x3276)};
      const auto* const values = reinterpret_cast<const T*>(&raw);
#pragma unroll
      for (int i = 0; i < 8; ++i) most = fmaxf(most, fabsf(to_float(values[i])));
    }
    *reinterpret_cast<uint4*>(to_ + place(eight)) = ordered;
  }

  /// Half floats, times a power of two that makes the largest less than 2^15. Each thread has what it put.
  __device__ __forceinline__ float make_halves(float most) const {
    __shared__ float warps[one_warps];
    most = warp_max(most);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = most;
    __syncthreads();
#pragma unroll
    for (int warp = 0; warp < one_warps; ++warp) most = fmaxf(most, warps[warp]);
    float factor = 1.0F;
    float back = 1.0F;
    const int exponent = static_cast<int>(__float_as_uint(most) >> 23);
    if (exponent > 40 && exponent < 240) {
      const int shift = 127 + 14 - exponent;
      factor = __uint_as_float(static_cast<unsigned>(127 + shift) << 23);
      back = __uint_as_float(static_cast<unsigned>(127 - shift) << 23);
    }
    for (int eight = static_cast<int>(threadIdx.x); eight < eights_; eight += threads) {
      std::byte* const at = to_ + place(eight);
      float values[8];
      load_floats(values, reinterpret_cast<const T*>(at));
#pragma unroll
      for (int i = 0; i < 8; ++i) values[i] *= factor;
      store_floats(reinterpret_cast<Half*>(at), values);
    }
    return back;
  }

  const OneJob& job_;
  std::byte* to_;
  int eights_;  // columns
};

/// The part that a group is in, and its first row there.
struct OneGroup {
  int part = 0;
  int row;

  __device__ __forceinline__ OneGroup(const OneJob& job, int group, int height) {
    while (group >= job.groups_end[part]) ++part;
    row = (group - (part == 0 ? 0 : job.groups_end[part - 1])) * height;
  }
};

/// Where a warp reads: step after step, group after group.
template <int Rows>
class OneReader {
 public:
  static constexpr int depth = one_loads / Rows;  // pieces of each row

  __device__ OneReader(const OneJob& job, int group, int group_step)
      : job_(job), group_(group), group_step_(group_step) {
    aim();
  }

  __device__ __forceinline__ void load(uint4 (&to)[Rows], int piece) const {
    const bool real = piece * one_piece < left_;
#pragma unroll
    for (int r = 0; r < Rows; ++r) to[r] = real ? stream16(rows_[r] + piece * one_piece) : uint4{};
  }

  __device__ __forceinline__ void next_step() {
    if (++step_ < job_.steps) {
#pragma unroll
      for (int r = 0; r < Rows; ++r) rows_[r] += depth * one_piece;
      left_ -= depth * one_piece;
      return;
    }
    step_ = 0;
    group_ += group_step_;
    aim();
  }

 private:
  __device__ __forceinline__ void aim() {
    left_ = 0;
    if (group_ >= job_.groups_end[job_.parts - 1]) return;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const OneGroup at(job_, group_, Rows);
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      const int row = min(at.row + r, job_.rows[at.part] - 1);
      rows_[r] = job_.data[at.part] + int64_t{row} * job_.row_bytes + 16 * lane;
    }
    left_ = job_.data_bytes - 16 * lane;
  }

  const OneJob& job_;
  const std::byte* rows_[Rows];  // this lane's 16 bytes of the next piece
  int left_;                     // bytes of the row from there on
  int group_;
  int group_step_;
  int step_ = 0;
};

/// Products of two rows.
template <typename Format, typename T>
struct OnePair {
  using Multiplied = OneMultiplied<Format, T>;
  float sums[2][4] = {};

  __device__ __forceinline__ void add(const uint4& a, const uint4& b, const std::byte* x) {
    const uint4 first = *reinterpret_cast<const uint4*>(x);
    if constexpr (is_f8<Format>) {
      const uint4 second = *reinterpret_cast<const uint4*>(x + one_piece);
      add_f8(sums[0], a.x, b.x, first.x, first.y);
      add_f8(sums[1], a.y, b.y, first.z, first.w);
      add_f8(sums[0], a.z, b.z, second.x, second.y);
      add_f8(sums[1], a.w, b.w, second.z, second.w);
    } else {
      multiply<Multiplied>(sums[0], a.x, b.x, a.y, b.y, first.x, first.y);
      multiply<Multiplied>(sums[1], a.z, b.z, a.w, b.w, first.z, first.w);
    }
  }
  /// The sum of one of the rows, in all lanes.
  __device__ __forceinline__ float total(int row) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const float even = sums[0][2 * row] + sums[1][2 * row];
    const float odd = sums[0][2 * row + 1] + sums[1][2 * row + 1];
    return warp_sum(lane % 4 == lane / 8 ? lane / 4 % 2 == 0 ? even : odd : 0.0F);
  }

 private:
  static __device__ __forceinline__ void add_f8(float (&to)[4], uint32_t a, uint32_t b, uint32_t x, uint32_t y) {
    multiply<Half>(to, halves_of_e4m3(a & 0xFFFFU), halves_of_e4m3(b & 0xFFFFU), halves_of_e4m3(a >> 16),
                   halves_of_e4m3(b >> 16), x, y);
  }
};

/// A lane's result, if it has one; what does not depend on the product is loaded before that.
template <typename T>
struct OneResult {
  float scale = 1.0F;
  float bias = 0.0F;  // and what y is before, where that counts
  int column = -1;

  __device__ __forceinline__ OneResult(const OneJob& job, int group, int height) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const OneGroup at(job, group, height);
    if (lane >= height || at.row + lane >= job.rows[at.part]) return;
    column = job.first_row[at.part] + at.row + lane;
    if (job.scale != nullptr) scale = job.scale[column];
    if (job.bias != nullptr) bias = job.bias[column];
    if (job.accumulate) bias += static_cast<const float*>(job.y)[column];
  }
  __device__ __forceinline__ void put(const OneJob& job, float sum) const {
    if (column < 0) return;
    const float value = fmaf(sum, scale, bias);
    if (job.result == Dtype::f32) {
      static_cast<float*>(job.y)[column] = value;
    } else {
      static_cast<T*>(job.y)[column] = from_float<T>(value);
    }
  }
};

template <typename Format, typename T, int Rows>
__global__ void __launch_bounds__(32 * one_warps, 2) multiply_one(const __grid_constant__ OneJob job) {
  using Reader = OneReader<Rows>;
  constexpr int depth = Reader::depth;
  constexpr int x_piece = one_x_piece<Format>;
  extern __shared__ __align__(128) std::byte x[];
  allow_next();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int group_step = static_cast<int>(gridDim.x) * one_warps;
  const int first = static_cast<int>(blockIdx.x) * one_warps + static_cast<int>(threadIdx.x) / 32;
  Reader reader(job, first, group_step);
  uint4 ring[depth][Rows];
#pragma unroll
  for (int i = 0; i < depth; ++i) reader.load(ring[i], i);
  reader.next_step();

  wait_for_previous();
  const float back = OneInput<Format, T>(job, x, job.steps * depth).bring();
  __syncthreads();
  for (int group = first; group < job.groups_end[job.parts - 1]; group += group_step) {
    const OneResult<T> result(job, group, Rows);
    OnePair<Format, T> pairs[Rows / 2];
    const std::byte* at = x + 16 * lane;
    for (int step = 0; step < job.steps; ++step) {
#pragma unroll
      for (int i = 0; i < depth; ++i) {
#pragma unroll
        for (int r = 0; r < Rows; r += 2) pairs[r / 2].add(ring[i][r], ring[i][r + 1], at + i * x_piece);
        reader.load(ring[i], i);
      }
      at += depth * x_piece;
      reader.next_step();
    }
    float mine = 0.0F;
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      const float total = pairs[r / 2].total(r % 2);
      if (lane == r) mine = total;
    }
    result.put(job, mine * back);
  }
}

template <typename Format, typename T, int Rows>
void launch_one_of(const Queue& queue, const OneJob& job, int shared_bytes) {
  static const bool allowed = allow_shared(multiply_one<Format, T, Rows>, most_one_shared);
  CHECK(allowed && shared_bytes <= most_one_shared);
  const int groups = job.groups_end[job.parts - 1];
  const int blocks = std::min(native(queue).multiprocessors, (groups + one_warps - 1) / one_warps);
  launch(queue, multiply_one<Format, T, Rows>, static_cast<unsigned>(blocks), 32 * one_warps,
         static_cast<size_t>(shared_bytes), job);
}

template <typename Format, typename T>
void launch_one(const Queue& queue, const OneJob& job, const OneLaunch& shape) {
  if (shape.group == 2) return launch_one_of<Format, T, 2>(queue, job, shape.shared_bytes);
  launch_one_of<Format, T, 4>(queue, job, shape.shared_bytes);
}

}  // namespace quern::cuda
