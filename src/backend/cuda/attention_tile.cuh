// Sixteen query rows against units of sixteen keys on the matrix units: what a warp does in attention.
#pragma once

#include "backend/cuda/attention_pages.cuh"

namespace quern::cuda {

inline constexpr int tile_rows = 16;
inline constexpr unsigned all_lanes = 0xFFFFFFFFU;

#ifdef __CUDACC__
__device__ __forceinline__ unsigned shared_address(const void* memory) {
  return static_cast<unsigned>(__cvta_generic_to_shared(memory));
}

/// 16 bytes into shared memory in the background; zeros if not `real`.
__device__ __forceinline__ void copy_chunk(unsigned to, const void* from, bool real) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(real ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until all but the newest `open` groups of copies are there.
template <int open>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(open) : "memory");
}

__device__ __forceinline__ void load_matrices(unsigned (&to)[4], unsigned from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void load_transposed(unsigned (&to)[4], unsigned from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}

/// c += a b: [16, 16] of a row of matrices by [16, 8].
template <typename T>
__device__ __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  if constexpr (sizeof(T) == 2 && std::is_same_v<T, Half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

/// What a lane of the warp has.
template <typename T>
__device__ __forceinline__ const T* of_lane(const T* pointer, int lane) {
  return reinterpret_cast<const T*>(__shfl_sync(all_lanes, reinterpret_cast<uint64_t>(pointer), lane));
}

template <typename T>
__device__ __forceinline__ unsigned pack(float low, float high) {
  if constexpr (std::is_same_v<T, Half>) {
    const __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&both);
  } else {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&both);
  }
}

__device__ __forceinline__ float power_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// tanh by one exponential: its error is a few units in the last place of 1.
__device__ __forceinline__ float fast_tanh(float x) {
  return 1.0F - __fdividef(2.0F, power_of_two(2.0F * 1.442695041F * x) + 1.0F);
}

/// Byte offset of 16 bytes in a unit in shared memory: [panel of 64 dims, key, 8 chunks], swapped as in the pages.
__device__ __forceinline__ unsigned chunk_offset(int row, int chunk) {
  return chunk / 8 * (unit_keys * 128) + row * 128 + (chunk % 8 ^ row % 8) * 16;
}

/// Counts a block that is done; what it wrote before a barrier is seen by the blocks that count later. Returns how many
/// were counted before.
__device__ __forceinline__ unsigned count_arrival(unsigned* counter) {
  unsigned before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before;
}

/// How sums over some keys and over later ones are added; in one arithmetic everywhere.
struct Rescale {
  float maximum;
  float before;
  float later;

  __device__ __forceinline__ Rescale(float maximum_before, float maximum_later)
      : maximum(fmaxf(maximum_before, maximum_later)) {
    const float base = maximum == -INFINITY ? 0.0F : maximum;
    before = power_of_two(maximum_before - base);
    later = power_of_two(maximum_later - base);
  }
  __device__ __forceinline__ float add(float sum, float more) const {
    return __fmaf_rn(more, later, __fmul_rn(sum, before));
  }
};

/// Where a query row of a kv head begins in a tensor of this stride.
__device__ __forceinline__ int64_t row_begin(const AttentionCall& call, int first_token, int kv_head, int row,
                                             int64_t stride) {
  const int64_t token = first_token + row / call.group;
  return token * stride + (kv_head * call.group + row % call.group) * call.pages.head_dim;
}

/// What the sums of a row are multiplied with at last: one over the sum of its weights, in which its head's sink
/// counts. The largest score is `maximum`, as a power of two.
__device__ __forceinline__ float last_factor(const AttentionCall& call, int kv_head, int row, float maximum,
                                             float total) {
  if (call.sinks != nullptr) {
    total += power_of_two(call.sinks[kv_head * call.group + row % call.group] * 1.442695041F - maximum);
  }
  return total > 0.0F ? call.pages.value_scale(kv_head) / total : 0.0F;
}

/// Keys [first, end) that a row sees.
struct RowSight {
  int first;
  int end;
};

/// Running sums of 16 rows. A thread has rows g = lane / 4 and g + 8, and of every eight columns the two at
/// 2 * (lane % 4).
template <typename T, int dims>
struct RowSums {
  float values[dims / 8][4];
  float maximum[2];
  float total[2];

  /// Sums of nothing, with queries [panel, 16, 64].
  __device__ __forceinline__ void begin(unsigned) { clear(); }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (auto& part : values) part[0] = part[1] = part[2] = part[3] = 0.0F;
    maximum[0] = maximum[1] = -INFINITY;
    total[0] = total[1] = 0.0F;
  }

  /// Adds keys [key, key + block) that are in shared memory with their values. `q`: [panel, 16, 64]
  template <int block>
  __device__ __forceinline__ void add(unsigned q, unsigned k, unsigned v, int key, const RowSight (&rows)[2],
                                      float log_scale, const Sight& sight) {
    float scores[block / 8][4];
    multiply_keys<block>(scores, q, k);
    soften<block>(scores, key, rows, log_scale, sight);
    add_values<block>(scores, v);
  }

  /// One of the thread's two rows: values to [dims], the maximum and the total to `sums`.
  __device__ __forceinline__ void store(float* to, float* sums, int half) const {
#pragma unroll
    for (int part = 0; part < dims / 8; ++part) {
      *reinterpret_cast<float2*>(to + part * 8 + threadIdx.x % 4 * 2) =
          make_float2(values[part][2 * half], values[part][2 * half + 1]);
    }
    store_sums(sums, half);
  }
  __device__ __forceinline__ void store_sums(float* sums, int half) const {
    if (threadIdx.x % 4 == 0) *reinterpret_cast<float2*>(sums) = make_float2(maximum[half], total[half]);
  }

  /// Sums of weights over the four threads that share a row.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (float& sum : total) {
      sum += __shfl_xor_sync(all_lanes, sum, 1);
      sum += __shfl_xor_sync(all_lanes, sum, 2);
    }
  }

  /// Scores become weights relative to the maximum, which is raised where one exceeds it by more than `margin`, in
  /// powers of two.
  template <int block, int margin = 0>
  __device__ __forceinline__ void soften(float (&scores)[block / 8][4], int key, const RowSight (&rows)[2],
                                         float log_scale, const Sight& sight) {
    scale<block>(scores, log_scale, sight);
    const bool hidden = max(rows[0].first, rows[1].first) > key || min(rows[0].end, rows[1].end) < key + block;
    if (__any_sync(all_lanes, hidden)) hide<block>(scores, key, rows);
    float best[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (auto& part : scores) {
      best[0] = fmaxf(best[0], fmaxf(part[0], part[1]));
      best[1] = fmaxf(best[1], fmaxf(part[2], part[3]));
    }
    const bool grows = best[0] > maximum[0] + margin || best[1] > maximum[1] + margin;
    if (__any_sync(all_lanes, grows)) raise_maximum(best);
    const float base[2] = {base_of(maximum[0]), base_of(maximum[1])};
#pragma unroll
    for (auto& part : scores) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        part[i] = power_of_two(part[i] - base[i / 2]);
        total[i / 2] += part[i];
      }
    }
  }

 private:
  template <int block>
  static __device__ __forceinline__ void scale(float (&scores)[block / 8][4], float log_scale, const Sight& sight) {
    if (sight.softcap > 0.0F) {
      const float cap = sight.softcap * 1.442695041F;
      const float inner = sight.scale / sight.softcap;
#pragma unroll
      for (int i = 0; i < block / 2; ++i) scores[i / 4][i % 4] = cap * fast_tanh(scores[i / 4][i % 4] * inner);
      return;
    }
#pragma unroll
    for (int i = 0; i < block / 2; ++i) scores[i / 4][i % 4] = __fmul_rn(scores[i / 4][i % 4], log_scale);
  }

  /// Keys that a row does not see have no weight.
  template <int block>
  static __device__ __forceinline__ void hide(float (&scores)[block / 8][4], int key, const RowSight (&rows)[2]) {
#pragma unroll
    for (int i = 0; i < block / 2; ++i) {
      const int at = key + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
      const RowSight& row = rows[i % 4 / 2];
      if (at < row.first || at >= row.end) scores[i / 4][i % 4] = -INFINITY;
    }
  }

  static __device__ __forceinline__ float base_of(float largest) { return largest == -INFINITY ? 0.0F : largest; }

  /// To the largest of `best` in the four threads of a row, if it is larger.
  __device__ __forceinline__ void raise_maximum(float (&best)[2]) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      best[row] = fmaxf(best[row], maximum[row]);
      best[row] = fmaxf(best[row], __shfl_xor_sync(all_lanes, best[row], 1));
      best[row] = fmaxf(best[row], __shfl_xor_sync(all_lanes, best[row], 2));
      const float rescale = power_of_two(maximum[row] - base_of(best[row]));
      maximum[row] = best[row];
      total[row] = __fmul_rn(total[row], rescale);
#pragma unroll
      for (auto& part : values) {
        part[2 * row] *= rescale;
        part[2 * row + 1] *= rescale;
      }
    }
  }

  static constexpr unsigned unit_bytes = unit_keys * dims * 2;

  template <int block>
  static __device__ __forceinline__ void multiply_keys(float (&scores)[block / 8][4], unsigned q, unsigned k) {
    const int lane = threadIdx.x % 32;
    const int key = lane % 8 + lane / 16 * 8;
#pragma unroll
    for (auto& part : scores) part[0] = part[1] = part[2] = part[3] = 0.0F;
#pragma unroll
    for (int step = 0; step < dims / 16; ++step) {
      unsigned a[4];
      load_matrices(a, q + chunk_offset(lane % 16, 2 * step + lane / 16));
#pragma unroll
      for (int unit = 0; unit < block / unit_keys; ++unit) {
        unsigned b[4];
        load_matrices(b, k + unit * unit_bytes + chunk_offset(key, 2 * step + lane / 8 % 2));
        multiply<T>(scores[2 * unit], a, b[0], b[1]);
        multiply<T>(scores[2 * unit + 1], a, b[2], b[3]);
      }
    }
  }

  template <int block>
  __device__ __forceinline__ void add_values(const float (&weights)[block / 8][4], unsigned v) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int unit = 0; unit < block / unit_keys; ++unit) {
      const unsigned a[4] = {pack<T>(weights[2 * unit][0], weights[2 * unit][1]),
                             pack<T>(weights[2 * unit][2], weights[2 * unit][3]),
                             pack<T>(weights[2 * unit + 1][0], weights[2 * unit + 1][1]),
                             pack<T>(weights[2 * unit + 1][2], weights[2 * unit + 1][3])};
#pragma unroll
      for (int pair = 0; pair < dims / 16; ++pair) {
        unsigned b[4];
        load_transposed(b, v + unit * unit_bytes + chunk_offset(lane % 16, 2 * pair + lane / 16));
        multiply<T>(values[2 * pair], a, b[0], b[1]);
        multiply<T>(values[2 * pair + 1], a, b[2], b[3]);
      }
    }
  }
};
#endif

}  // namespace quern::cuda
