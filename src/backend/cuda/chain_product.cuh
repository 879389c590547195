// Products of a chain.
#pragma once

#include "backend/cuda/activation.cuh"
#include "backend/cuda/chain_memory.cuh"
#include "backend/cuda/linear_stream_integers.cuh"
#include "backend/cuda/vectors.h"

namespace quern::cuda {

/// Combines a value of every thread of the block; all get the result. `few`: memory that nothing else uses until the
/// next barrier.
template <typename Combine>
__device__ __forceinline__ float combine_block(float* few, float value, Combine&& combine) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value = combine(value, __shfl_xor_sync(0xFFFFFFFFU, value, step));
  if (threadIdx.x % 32 == 0) few[threadIdx.x / 32] = value;
  sync_chain();
  float all = few[0];
#pragma unroll
  for (int warp = 1; warp < chain_warps; ++warp) all = combine(all, few[warp]);
  return all;
}

/// Where a product's activations go, eight columns at a time. Each thread has those of the same lane in every block of
/// 32 columns: 8 i ... 8 i + 7 of lane i of four, or as Packed::narrow says. Code that runs once for each record costs
/// its size: it comes from far away each time.
template <typename Format, typename T>
class ChainColumns {
 public:
  static constexpr bool panels = !in_rows<Format>;
  static constexpr bool f8 = is_f8<Format>;

  __device__ ChainColumns(const ChainProduct& shape, const ChainRecord& record, ChainMemory memory)
      : shape_(shape), record_(record), memory_(memory) {
    const int whole = panels ? record_columns : f8 ? 512 : 8;
    units_ = (shape.cols + whole - 1) / whole * (whole / 8);
  }

  /// Makes them all; returns what products have to be multiplied with.
  __device__ __forceinline__ float make() {
    float most = 0.0F;
    switch (shape_.source) {
      case ChainSource::plain: most = make_plain(); break;
      case ChainSource::norm: most = shape_.cols <= 8 * chain_threads ? make_normed<1>() : make_normed<2>(); break;
      case ChainSource::gated: most = make_gated(); break;
    }
    if constexpr (f8 && !std::is_same_v<T, Half>) return make_halves(most);
    return 1.0F;
  }

 private:
  static constexpr int at_once = 4;

  /// The first column of one of the two halves of a unit, or of one that is there.
  __device__ __forceinline__ int column(int unit, int half) const {
    int at = 8 * unit + 4 * half;
    if constexpr (panels) {
      if constexpr (Packed<Format>::narrow) at = unit / 4 * 32 + unit % 4 * 4 + 16 * half;
    }
    return min(at, shape_.cols - 4);
  }
  /// What is no column becomes zero.
  __device__ __forceinline__ void clear(float (&values)[8], int unit) const {
    if constexpr (panels || f8) {
      if (shape_.cols % (panels ? record_columns : 512) == 0) return;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        int at = 8 * unit + i;
        if constexpr (panels) {
          if constexpr (Packed<Format>::narrow) at = unit / 4 * 32 + unit % 4 * 4 + 16 * (i / 4) + i % 4;
        }
        if (at >= shape_.cols) values[i] = 0.0F;
      }
    }
  }
  /// Eight activations of 16 bits.
  struct Raw {
    uint2 half[2];

    __device__ __forceinline__ void get(float (&to)[8]) const {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const auto packet = *reinterpret_cast<const Packet<T, 4>*>(&half[h]);
#pragma unroll
        for (int i = 0; i < 4; ++i) to[4 * h + i] = to_float(packet.v[i]);
      }
    }
  };
  __device__ __forceinline__ Raw load(const void* from, int unit) const {
    Raw raw;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      raw.half[h] = __ldcg(reinterpret_cast<const uint2*>(static_cast<const T*>(from) + column(unit, h)));
    }
    return raw;
  }
  static __device__ __forceinline__ float largest(float most, const float (&values)[8]) {
    if constexpr (f8) {
#pragma unroll
      for (int i = 0; i < 8; ++i) most = fmaxf(most, fabsf(values[i]));
    }
    return most;
  }

  __device__ __forceinline__ float make_plain() const {
    float most = 0.0F;
    const void* const x = record_.product.x;
#pragma unroll 1
    for (int unit = static_cast<int>(threadIdx.x); unit / 32 * 32 < units_; unit += 2 * chain_threads) {
      const Raw raw[2] = {load(x, unit), load(x, unit + chain_threads)};
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (j > 0 && (unit + chain_threads) / 32 * 32 >= units_) break;
        float values[8];
        raw[j].get(values);
        clear(values, unit + j * chain_threads);
        most = largest(most, values);
        put(values, unit + j * chain_threads);
      }
    }
    return most;
  }

  template <int count>
  __device__ __forceinline__ float make_normed() const {
    float4 x[count][2];
    float4 f[count][2];
#pragma unroll
    for (int j = 0; j < count; ++j) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int at = column(static_cast<int>(threadIdx.x) + j * chain_threads, h);
        x[j][h] = __ldcg(reinterpret_cast<const float4*>(static_cast<const float*>(record_.product.x) + at));
        f[j][h] = __ldg(reinterpret_cast<const float4*>(record_.product.norm + at));
      }
    }
    float sum = 0.0F;
    float values[count][8];
#pragma unroll
    for (int j = 0; j < count; ++j) {
      const int unit = static_cast<int>(threadIdx.x) + j * chain_threads;
      const float eight[8] = {x[j][0].x, x[j][0].y, x[j][0].z, x[j][0].w, x[j][1].x, x[j][1].y, x[j][1].z, x[j][1].w};
#pragma unroll
      for (int i = 0; i < 8; ++i) values[j][i] = 8 * unit < shape_.cols ? eight[i] : 0.0F;
      clear(values[j], unit);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum = fmaf(values[j][i], values[j][i], sum);
    }
    sum = combine_block(memory_.few(), sum, [](float a, float b) { return a + b; });
    const float scale = rsqrtf(__fdividef(sum, static_cast<float>(shape_.cols)) + shape_.eps);
    float most = 0.0F;
#pragma unroll
    for (int j = 0; j < count; ++j) {
      const int unit = static_cast<int>(threadIdx.x) + j * chain_threads;
      if (unit / 32 * 32 >= units_) break;
      const float by[8] = {f[j][0].x, f[j][0].y, f[j][0].z, f[j][0].w, f[j][1].x, f[j][1].y, f[j][1].z, f[j][1].w};
#pragma unroll
      for (int i = 0; i < 8; ++i) values[j][i] = to_float(from_float<T>(values[j][i] * (scale * by[i])));
      if (blockIdx.x == 0) keep(values[j], unit);
      most = largest(most, values[j]);
      put(values[j], unit);
    }
    return most;
  }
  __device__ __forceinline__ void keep(const float (&values)[8], int unit) const {
    if (8 * unit >= shape_.cols) return;
    const float low[4] = {values[0], values[1], values[2], values[3]};
    const float high[4] = {values[4], values[5], values[6], values[7]};
    store_floats(static_cast<T*>(record_.product.normed) + column(unit, 0), low);
    store_floats(static_cast<T*>(record_.product.normed) + column(unit, 1), high);
  }

  __device__ __forceinline__ float make_gated() const {
    const void* const gates = record_.product.x;
    const void* const ups = static_cast<const T*>(gates) + shape_.cols;
    const bool silu = shape_.activation == Activation::silu;  // else the tanh form of gelu (activation.cuh)
    const float cubic = silu ? 0.0F : 0.0713548163F;
    const float linear = silu ? 1.0F : 1.59576912F;
    float most = 0.0F;
#pragma unroll 1
    for (int first = static_cast<int>(threadIdx.x); first / 32 * 32 < units_; first += at_once * chain_threads) {
      Raw raw[at_once][2];
#pragma unroll
      for (int j = 0; j < at_once; ++j) {
        raw[j][0] = load(gates, first + j * chain_threads);
        raw[j][1] = load(ups, first + j * chain_threads);
      }
#pragma unroll 1
      for (int unit = first; unit < first + at_once * chain_threads && unit / 32 * 32 < units_; unit += chain_threads) {
        float values[8];
        float by[8];
        raw[0][0].get(values);
        raw[0][1].get(by);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const float x = values[i];
          const float gated = times_sigmoid<T>(x, x * fmaf(x * x, cubic, linear)) * by[i];
          values[i] = to_float(from_float<T>(gated));
        }
        clear(values, unit);
        most = largest(most, values);
        put(values, unit);
#pragma unroll
        for (int j = 0; j + 1 < at_once; ++j) {
          raw[j][0] = raw[j + 1][0];
          raw[j][1] = raw[j + 1][1];
        }
      }
    }
    return most;
  }

  static __device__ __forceinline__ int place(int unit) {
    if constexpr (!f8) return 8 * unit;
    return unit / 64 * 512 + unit % 8 / 4 * 256 + (unit / 8 % 8 * 4 + unit % 4) * 8;
  }
  __device__ __forceinline__ void put(const float (&values)[8], int unit) const {
    if constexpr (panels) {
      using Products = IntegerProducts<Format, T, 1>;
      Products::make_levels(values, memory_.x(), unit / 4, 4 * records_of(shape_.cols), unit < units_);
    } else {
      if (unit >= units_) return;
      T* const to = reinterpret_cast<T*>(memory_.x()) + place(unit);
      if constexpr (f8) {
        const float in_order[8] = {values[2], values[0], values[3], values[1],
                                   values[6], values[4], values[7], values[5]};
        store_floats(to, in_order);
      } else {
        store_floats(to, values);
      }
    }
  }

  /// Beside 8-bit floats matrix units take half floats: those are times a power of two, which makes the largest less
  /// than 2^15.
  __device__ __forceinline__ float make_halves(float most) const {
    most = combine_block(memory_.few() + chain_warps, most, [](float a, float b) { return fmaxf(a, b); });
    float factor = 1.0F;
    float back = 1.0F;
    const int exponent = static_cast<int>(__float_as_uint(most) >> 23);
    if (exponent > 40 && exponent < 240) {
      const int shift = 127 + 14 - exponent;
      factor = __uint_as_float(static_cast<unsigned>(127 + shift) << 23);
      back = __uint_as_float(static_cast<unsigned>(127 - shift) << 23);
    }
#pragma unroll 1
    for (int unit = static_cast<int>(threadIdx.x); unit < units_; unit += chain_threads) {
      float values[8];
      load_floats(values, reinterpret_cast<const T*>(memory_.x()) + place(unit));
#pragma unroll
      for (int i = 0; i < 8; ++i) values[i] *= factor;
      store_floats(reinterpret_cast<Half*>(memory_.x()) + place(unit), values);
    }
    return back;
  }

  const ChainProduct& shape_;
  const ChainRecord& record_;
  ChainMemory memory_;
  int units_;  // of eight columns
};

/// A row's product with x, of pieces of 2 KB. Lanes are the diagonal of a matrix product: what lane 4 g + t multiplies
/// is, for the matrix unit, row g times column g.
template <typename Format, typename T>
struct ChainRow {
  static constexpr bool f8 = is_f8<Format>;
  using Multiplied = std::conditional_t<f8, Half, T>;
  static constexpr int lane_pieces = chain_row_piece / 512;

  float sums[2][4] = {};

  static __device__ __forceinline__ void multiply(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t b0, uint32_t b1) {
    constexpr uint32_t none = 0;
    if constexpr (std::is_same_v<Multiplied, Half>) {
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %6, %5, %6}, {%7, %8}, {%0, %1, "
          "%2, "
          "%3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a0), "r"(a1), "r"(none), "r"(b0), "r"(b1));
    } else {
      asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %6, %5, %6}, {%7, %8}, {%0, %1, "
          "%2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a0), "r"(a1), "r"(none), "r"(b0), "r"(b1));
    }
  }

  /// Piece `number` of the row, of which `bytes` are there.
  __device__ __forceinline__ void add(const std::byte* slot, const std::byte* x, int number, int bytes) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < lane_pieces; ++i) {
      if (512 * i >= bytes) break;
      const bool mine = 512 * i + 16 * lane < bytes;
      const uint4 none{};
      const uint4 w = mine ? *reinterpret_cast<const uint4*>(slot + 512 * i + 16 * lane) : none;
      if constexpr (f8) {  // as ChainColumns put them
        const std::byte* const from = x + 1024 * (lane_pieces * number + i) + 16 * lane;
        const uint4 first = *reinterpret_cast<const uint4*>(from);
        const uint4 second = *reinterpret_cast<const uint4*>(from + 512);
        multiply(sums[0], halves_of_e4m3(w.x & 0xFFFFU), halves_of_e4m3(w.x >> 16), first.x, first.y);
        multiply(sums[1], halves_of_e4m3(w.y & 0xFFFFU), halves_of_e4m3(w.y >> 16), first.z, first.w);
        multiply(sums[0], halves_of_e4m3(w.z & 0xFFFFU), halves_of_e4m3(w.z >> 16), second.x, second.y);
        multiply(sums[1], halves_of_e4m3(w.w & 0xFFFFU), halves_of_e4m3(w.w >> 16), second.z, second.w);
      } else {
        const std::byte* const from = x + chain_row_piece * number + 512 * i + 16 * lane;
        const uint4 v = mine ? *reinterpret_cast<const uint4*>(from) : none;
        multiply(sums[0], w.x, w.y, v.x, v.y);
        multiply(sums[1], w.z, w.w, v.z, v.w);
      }
    }
  }

  __device__ __forceinline__ float total() const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const bool odd = lane / 4 % 2 == 1;
    const float mine = odd ? sums[0][1] + sums[1][1] : sums[0][0] + sums[1][0];
    return warp_sum(lane % 4 == lane / 8 ? mine : 0.0F);
  }
};

/// One result, of which what does not depend on the product was loaded before.
template <typename T>
struct ChainResult {
  float scale = 1.0F;
  float bias = 0.0F;  // and what y is before, where that counts
  int column = -1;

  __device__ __forceinline__ ChainResult(const ChainProduct& shape, const ChainRecord& record, int line,
                                         int row_of_line, int line_rows, bool wanted) {
    if (!wanted) return;
    const int part = part_of(shape, line);
    const int row = (line - (part == 0 ? 0 : shape.lines_end[part - 1])) * line_rows + row_of_line;
    if (row >= shape.rows[part]) return;
    column = shape.first_row[part] + row;
    if (record.product.scale != nullptr) scale = __ldg(record.product.scale + column);
    if (record.product.bias != nullptr) bias = __ldg(record.product.bias + column);
    if (shape.accumulate) bias += __ldcg(static_cast<const float*>(record.product.y) + column);
  }
  __device__ __forceinline__ void put(const ChainProduct& shape, const ChainRecord& record, float sum) const {
    if (column < 0) return;
    const float value = fmaf(sum, scale, bias);
    if (shape.result == Dtype::f32) {
      static_cast<float*>(record.product.y)[column] = value;
    } else {
      static_cast<T*>(record.product.y)[column] = from_float<T>(value);
    }
  }
};

/// What a product reads and the rings do not bring.
__device__ __forceinline__ void bring_product_near(const ChainRecord& record) {
  const ChainProduct& shape = ChainMemory().program().product[record.shape];
  if (shape.source == ChainSource::norm) bring_near(record.product.norm, int64_t{shape.cols} * 4);
  const int64_t rows = shape.first_row[shape.parts - 1] + shape.rows[shape.parts - 1];
  bring_near(record.product.scale, rows * 4);
  bring_near(record.product.bias, rows * 4);
}

template <typename Format, typename T>
__device__ __forceinline__ void multiply_rows(const ChainProduct& shape, const ChainRecord& record, ChainMemory memory,
                                              ChainRing& ring, float back) {
  const ChainShare share(memory, record.shape, ChainRing::warp());
  const std::byte* const x = memory.x();
  ChainResult<T> next(shape, record, share.line, 0, 1, share.line < share.line_end);
  for (int line = share.line; line < share.line_end; ++line) {
    const ChainResult<T> result = next;
    next = ChainResult<T>(shape, record, line + 1, 0, 1, line + 1 < share.line_end);
    ChainRow<Format, T> row;
    for (int piece = 0; piece < share.piece_end; ++piece) {
      row.add(ring.wait(memory), x, piece, min(chain_row_piece, shape.line_bytes - piece * chain_row_piece));
      ring.next(memory);
    }
    const float total = row.total() * back;
    if (threadIdx.x % 32 == 0) result.put(shape, record, total);
  }
}

template <typename Format, typename T>
__device__ __forceinline__ void multiply_panels(const ChainProduct& shape, const ChainRecord& record,
                                                ChainMemory memory, ChainRing& ring) {
  using Products = IntegerProducts<Format, T, 1>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = ChainRing::warp();
  SkinnyJob job{};
  job.tokens = 1;
  job.share = records_of(shape.cols);
  job.headers_at = shape.piece_bytes;
  const ChainShare share(memory, record.shape, warp);
  const int each = shape.piece_bytes / Packed<Format>::record_bytes;
  int buffer = 0;
  for (int line = share.line; line < share.line_end; line += share.line_step) {
    const bool adds = warp == line / share.line_step % chain_warps && lane < panel_height;
    const ChainResult<T> result(shape, record, line, lane, panel_height, adds);
    Products products;
    for (int piece = share.piece_begin; piece < share.piece_end; ++piece) {
      const std::byte* const slot = ring.wait(memory);
      products.add(job, slot, 0, memory.x(), piece * each);
      if (each > 1 && piece * each + 1 < job.share) products.add(job, slot, 1, memory.x(), piece * each + 1);
      ring.next(memory);
    }
    float* const sums = memory.sums(buffer);
    products.leave(job, [&](int row, float sum) { sums[warp * panel_height + row] = sum; });
    sync_chain();
    if (adds) {
      float sum = 0.0F;
#pragma unroll
      for (int other = 0; other < chain_warps; ++other) sum += sums[other * panel_height + lane];
      result.put(shape, record, sum);
    }
    buffer ^= 1;
  }
}

template <typename Format, typename T>
__device__ __noinline__ ChainRing multiply(int number, ChainRing ring) {
  const ChainMemory memory;
  const ChainRecord& record = memory.program().record[number];
  const ChainProduct& shape = memory.program().product[record.shape];
  const float back = ChainColumns<Format, T>(shape, record, memory).make();
  sync_chain();
  if constexpr (in_rows<Format>)
    multiply_rows<Format, T>(shape, record, memory, ring, back);
  else
    multiply_panels<Format, T>(shape, record, memory, ring);
  return ring;
}

template <typename T>
__device__ __forceinline__ ChainRing multiply(int number, const ChainRing& ring) {
  const ChainProgram& program = ChainMemory().program();
  switch (program.product[program.record[number].shape].format) {
    case FormatId::f8: return multiply<F8, T>(number, ring);
    case FormatId::q4_0: return multiply<Q4_0, T>(number, ring);
    case FormatId::q4_1: return multiply<Q4_1, T>(number, ring);
    case FormatId::q5_0: return multiply<Q5_0, T>(number, ring);
    case FormatId::q8_0: return multiply<Q8_0, T>(number, ring);
    case FormatId::q4_k: return multiply<Q4_K, T>(number, ring);
    case FormatId::q5_k: return multiply<Q5_K, T>(number, ring);
    case FormatId::q6_k: return multiply<Q6_K, T>(number, ring);
    default:
      if constexpr (std::is_same_v<T, Half>)
        return multiply<F16, T>(number, ring);
      else
        return multiply<BF16, T>(number, ring);
  }
}

}  // namespace quern::cuda
