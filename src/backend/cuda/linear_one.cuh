// The kernel of linear_one.h. A block stays on each SM; its warps take groups of neighbouring rows in turn, the next
// rows under way while the last ones are added up. Nothing but x is shared, so that warps do not wait for each other.
//
// Matrix units multiply, with sums in float: lane 4 g + t brings 16 bytes of a row as row g of the first operand and of
// x as column g of the second one, so that the diagonal of the result has the sums of all lanes. Rows 8 to 15 are
// another row of the group.
#pragma once

#include "backend/cuda/activation.cuh"
#include "backend/cuda/linear_one.h"
#include "backend/cuda/linear_unpack.cuh"
#include "backend/cuda/vectors.h"

namespace quern::cuda {

/// x in shared memory, in the order of the lanes that multiply it: `vectors` of `cols`, each of whole pieces.
template <typename Format, typename T>
class OneInput {
 public:
  __device__ OneInput(std::byte* to, int pieces, int cols, int vectors = 1)
      : to_(to), each_(pieces * one_x_piece<Format> / 16), eights_(vectors * each_), cols_(cols) {}

  /// All threads: brings x; returns what products have to be multiplied with.
  __device__ __forceinline__ float bring(const void* x, int64_t stride, bool aligned) const {
    constexpr int at_once = 4;  // so that they are on their way together
    float most = 0.0F;
    for (int first = static_cast<int>(threadIdx.x); first < eights_; first += at_once * threads) {
      uint4 raw[at_once];
#pragma unroll
      for (int j = 0; j < at_once; ++j) {
        raw[j] = load(static_cast<const T*>(x), stride, aligned, first + j * threads);
      }
#pragma unroll
      for (int j = 0; j < at_once; ++j) {
        if (first + j * threads < eights_) put(raw[j], first + j * threads, most);
      }
    }
    if constexpr (is_f8<Format> && !std::is_same_v<T, Half>) return make_halves(most);
    return 1.0F;
  }

  /// The same of one vector that a norm makes; the first block also writes that.
  template <int count>
  __device__ __forceinline__ float bring_normed(const NormBefore& norm) const {
    __shared__ float warps[one_warps];
    float values[count][8] = {};
    float weights[count][8];
    float sum = 0.0F;
#pragma unroll
    for (int j = 0; j < count; ++j) {
      const int column = 8 * (static_cast<int>(threadIdx.x) + j * threads);
      if (column >= cols_) continue;
      load_floats(values[j], norm.x + column);
      load_floats(weights[j], norm.weight + column);
    }
#pragma unroll
    for (int j = 0; j < count; ++j) {
#pragma unroll
      for (int i = 0; i < 8; ++i) sum = fmaf(values[j][i], values[j][i], sum);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    float total = 0.0F;
#pragma unroll
    for (int warp = 0; warp < one_warps; ++warp) total += warps[warp];
    const float scale = rsqrtf(total / static_cast<float>(cols_) + norm.eps);
    float most = 0.0F;
#pragma unroll
    for (int j = 0; j < count; ++j) {
      const int eight = static_cast<int>(threadIdx.x) + j * threads;
      if (eight >= eights_) break;
      const bool real = 8 * eight < cols_;
#pragma unroll
      for (int i = 0; i < 8; ++i) values[j][i] *= real ? scale * weights[j][i] : 0.0F;
      Packet<T, 8> rounded;
      store_floats(rounded.v, values[j]);
      const uint4 raw = *reinterpret_cast<const uint4*>(&rounded);
      if (blockIdx.x == 0 && real) *reinterpret_cast<uint4*>(static_cast<T*>(norm.normed) + 8 * eight) = raw;
      put(raw, eight, most);
    }
    if constexpr (is_f8<Format> && !std::is_same_v<T, Half>) return make_halves(most);
    return 1.0F;
  }

 private:
  static constexpr int threads = 32 * one_warps;

  /// Eight columns; zeros behind the last one.
  __device__ __forceinline__ uint4 load(const T* x, int64_t stride, bool aligned, int eight) const {
    const int vector = eight / each_;
    const int column = 8 * (eight - vector * each_);
    if (eight >= eights_ || column >= cols_) return {};
    x += vector * stride + column;
    if (aligned && column + 8 <= cols_) return *reinterpret_cast<const uint4*>(x);
    Packet<T, 8> values;
#pragma unroll
    for (int i = 0; i < 8; ++i) values.v[i] = column + i < cols_ ? x[i] : from_float<T>(0.0F);
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

  std::byte* to_;
  int each_;    // times eight columns, of a vector
  int eights_;  // of all
  int cols_;
};

/// How a warp goes through its work: groups of rows, each in steps of all loads that it has under way.
struct OneShape {
  int groups;
  int group_step;
  int steps;
  int data_bytes;  // of a row
};

/// Where a warp reads: step after step, group after group. `Work::find(group, rows)` says where a group's rows are.
template <int Rows, typename Work>
class OneReader {
 public:
  static constexpr int depth = one_loads / Rows;  // pieces of each row

  __device__ OneReader(const Work& work, const OneShape& shape, int group) : work_(work), shape_(shape), group_(group) {
    aim();
  }

  __device__ __forceinline__ void load(uint4 (&to)[Rows], int piece) const {
    const bool real = piece * one_piece < left_;
#pragma unroll
    for (int r = 0; r < Rows; ++r) to[r] = real ? stream16(rows_[r] + piece * one_piece) : uint4{};
  }

  __device__ __forceinline__ void next_step() {
    if (++step_ < shape_.steps) {
#pragma unroll
      for (int r = 0; r < Rows; ++r) rows_[r] += depth * one_piece;
      left_ -= depth * one_piece;
      return;
    }
    step_ = 0;
    group_ += shape_.group_step;
    aim();
  }

 private:
  __device__ __forceinline__ void aim() {
    left_ = 0;
    if (group_ >= shape_.groups) return;
    const int in_piece = 16 * (static_cast<int>(threadIdx.x) % 32);
    work_.find(group_, rows_);
#pragma unroll
    for (int r = 0; r < Rows; ++r) rows_[r] += in_piece;
    left_ = shape_.data_bytes - in_piece;
  }

  const Work& work_;
  const OneShape& shape_;
  const std::byte* rows_[Rows];  // this lane's 16 bytes of the next piece
  int left_;                     // bytes of the row from there on
  int group_;
  int step_ = 0;
};

/// Products of two rows.
template <typename Format, typename T>
struct OnePair {
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
      multiply<T>(sums[0], a.x, b.x, a.y, b.y, first.x, first.y);
      multiply<T>(sums[1], a.z, b.z, a.w, b.w, first.z, first.w);
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

/// A warp's loads under way and the work that it goes through with them. `Work::x_at(group)` is where a group's x
/// begins in shared memory; `Work::result(group)` has put(), which gets the sums of the group's rows.
template <typename Format, typename T, int Rows, typename Work>
class OneWarp {
 public:
  using Reader = OneReader<Rows, Work>;
  static constexpr int depth = Reader::depth;

  __device__ __forceinline__ OneWarp(const Work& work, const OneShape& shape)
      : work_(work),
        shape_(shape),
        first_(static_cast<int>(blockIdx.x) * one_warps + static_cast<int>(threadIdx.x) / 32),
        reader_(work, shape, first_) {
#pragma unroll
    for (int i = 0; i < depth; ++i) reader_.load(ring_[i], i);
    reader_.next_step();
  }

  /// `back`: what products are multiplied with.
  __device__ __forceinline__ void multiply(const std::byte* x, float back) {
    constexpr int x_piece = one_x_piece<Format>;
    for (int group = first_; group < shape_.groups; group += shape_.group_step) {
      const auto result = work_.result(group);
      OnePair<Format, T> pairs[Rows / 2];
      const std::byte* at = x + work_.x_at(group) + 16 * (threadIdx.x % 32);
      for (int step = 0; step < shape_.steps; ++step) {
#pragma unroll
        for (int i = 0; i < depth; ++i) {
#pragma unroll
          for (int r = 0; r < Rows; r += 2) pairs[r / 2].add(ring_[i][r], ring_[i][r + 1], at + i * x_piece);
          reader_.load(ring_[i], i);
        }
        at += depth * x_piece;
        reader_.next_step();
      }
      float totals[Rows];
#pragma unroll
      for (int r = 0; r < Rows; ++r) totals[r] = pairs[r / 2].total(r % 2) * back;
      result.put(totals);
    }
  }

 private:
  const Work& work_;
  const OneShape& shape_;
  int first_;
  Reader reader_;
  uint4 ring_[depth][Rows];
};

/// A lane's own one of `Count` values, which are every `Step`th from `First` on.
template <int Count, int Step = 1, int First = 0, int All>
__device__ __forceinline__ float own_of(const float (&values)[All]) {
  float own = values[First];
#pragma unroll
  for (int i = 1; i < Count; ++i) {
    if (static_cast<int>(threadIdx.x) % 32 == i) own = values[First + i * Step];
  }
  return own;
}

/// The part that a group is in, and its first row there.
struct OneGroup {
  int part = 0;
  int row;

  __device__ __forceinline__ OneGroup(const OneJob& job, int group, int height) {
    while (group >= job.groups_end[part]) ++part;
    row = (group - (part == 0 ? 0 : job.groups_end[part - 1])) * height;
  }
};

/// The work of a OneJob.
template <typename T, int Rows>
struct OneLinear {
  const OneJob& job;

  __device__ __forceinline__ void find(int group, const std::byte* (&rows)[Rows]) const {
    const OneGroup at(job, group, Rows);
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      rows[r] = job.data[at.part] + int64_t{min(at.row + r, job.rows[at.part] - 1)} * job.row_bytes;
    }
  }
  static __device__ __forceinline__ int x_at(int /*group*/) { return 0; }

  /// A lane's result, if it has one; what does not depend on the product is loaded before that.
  struct Result {
    const OneJob& job;
    float scale = 1.0F;
    float bias = 0.0F;  // and what y is before, where that counts
    int column = -1;

    __device__ __forceinline__ Result(const OneJob& j, int group) : job(j) {
      const int lane = static_cast<int>(threadIdx.x) % 32;
      const OneGroup at(job, group, Rows);
      if (lane >= Rows || at.row + lane >= job.rows[at.part]) return;
      column = job.first_row[at.part] + at.row + lane;
      if (job.scale != nullptr) scale = job.scale[column];
      if (job.bias != nullptr) bias = job.bias[column];
      if (job.accumulate) bias += static_cast<const float*>(job.y)[column];
    }
    __device__ __forceinline__ void put(const float (&totals)[Rows]) const {
      const float value = fmaf(own_of<Rows>(totals), scale, bias);
      if (column < 0) return;
      if (job.result == Dtype::f32) {
        static_cast<float*>(job.y)[column] = value;
      } else {
        static_cast<T*>(job.y)[column] = from_float<T>(value);
      }
    }
  };
  __device__ __forceinline__ Result result(int group) const { return {job, group}; }
};

/// The same of a gate and an up projection, whose rows are a group in turn.
template <typename T, int Rows>
struct OneGated {
  const OneJob& job;

  __device__ __forceinline__ void find(int group, const std::byte* (&rows)[Rows]) const {
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      const int row = min(group * (Rows / 2) + r / 2, job.rows[0] - 1);
      rows[r] = job.data[r % 2] + int64_t{row} * job.row_bytes;
    }
  }
  static __device__ __forceinline__ int x_at(int /*group*/) { return 0; }

  struct Result {
    const OneJob& job;
    float scales[2] = {1.0F, 1.0F};
    float biases[2] = {};
    int row;

    __device__ __forceinline__ Result(const OneJob& j, int group) : job(j) {
      const int lane = static_cast<int>(threadIdx.x) % 32;
      row = group * (Rows / 2) + lane;
      if (lane >= Rows / 2 || row >= job.rows[0]) row = -1;
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        if (row >= 0 && job.scale != nullptr) scales[part] = job.scale[job.first_row[part] + row];
        if (row >= 0 && job.bias != nullptr) biases[part] = job.bias[job.first_row[part] + row];
      }
    }
    __device__ __forceinline__ void put(const float (&totals)[Rows]) const {
      T values[2];
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const float own = part == 0 ? own_of<Rows / 2, 2, 0>(totals) : own_of<Rows / 2, 2, 1>(totals);
        values[part] = from_float<T>(fmaf(own, scales[part], biases[part]));
      }
      if (row < 0) return;
#pragma unroll
      for (int part = 0; part < 2; ++part) static_cast<T*>(job.y)[job.first_row[part] + row] = values[part];
      const float value = gated_value<T>(to_float(values[0]), to_float(values[1]), job.activation);
      static_cast<T*>(job.gated)[row] = from_float<T>(value);
    }
  };
  __device__ __forceinline__ Result result(int group) const { return {job, group}; }
};

template <typename Format, typename T, int Rows, bool Gated>
__global__ void __launch_bounds__(32 * one_warps, 2) multiply_one(const __grid_constant__ OneJob job) {
  using Work = std::conditional_t<Gated, OneGated<T, Rows>, OneLinear<T, Rows>>;
  extern __shared__ __align__(128) std::byte x[];
  allow_next();
  const Work work{job};
  const OneShape shape{job.groups_end[Gated ? 0 : job.parts - 1], static_cast<int>(gridDim.x) * one_warps, job.steps,
                       job.data_bytes};
  OneWarp<Format, T, Rows, Work> warp(work, shape);
  wait_for_previous();
  const OneInput<Format, T> input(x, job.steps * (one_loads / Rows), job.cols);
  float back = 1.0F;
  if (job.norm.x == nullptr)
    back = input.bring(job.x, 0, job.x_aligned);
  else if (job.cols <= most_norm_columns / 2)
    back = input.template bring_normed<2>(job.norm);
  else
    back = input.template bring_normed<4>(job.norm);
  __syncthreads();
  warp.multiply(x, back);
}

template <typename Format, typename T, int Rows, bool Gated>
void launch_one_of(const Queue& queue, const OneJob& job, int shared_bytes) {
  static const bool allowed = allow_shared(multiply_one<Format, T, Rows, Gated>, most_one_shared);
  CHECK(allowed && shared_bytes <= most_one_shared);
  const int groups = job.groups_end[Gated ? 0 : job.parts - 1];
  const int blocks = std::min(native(queue).multiprocessors, (groups + one_warps - 1) / one_warps);
  launch(queue, multiply_one<Format, T, Rows, Gated>, static_cast<unsigned>(blocks), 32 * one_warps,
         static_cast<size_t>(shared_bytes), job);
}

template <typename Format, typename T>
void launch_one(const Queue& queue, const OneJob& job, const OneLaunch& shape) {
  if (job.gated != nullptr) {
    if (shape.group == 2) return launch_one_of<Format, T, 2, true>(queue, job, shape.shared_bytes);
    return launch_one_of<Format, T, 4, true>(queue, job, shape.shared_bytes);
  }
  if (shape.group == 2) return launch_one_of<Format, T, 2, false>(queue, job, shape.shared_bytes);
  launch_one_of<Format, T, 4, false>(queue, job, shape.shared_bytes);
}

}  // namespace quern::cuda
