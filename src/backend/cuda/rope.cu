#include "ops/rope.h"

#include "backend/cuda/launch.h"
#include "backend/cuda/vectors.h"

namespace quern::cuda {
namespace {

constexpr int threads = 128;

unsigned blocks_for(int64_t items) { return static_cast<unsigned>((items + threads - 1) / threads); }

/// A thread for each angle. Whole turns are taken off in double, so that any position is exact enough.
__global__ void __launch_bounds__(threads)
    fill_table(float* table, int64_t stride, const int* positions, const float* inverse_frequencies, int64_t count,
               int pairs, float factor) {
  allow_next();
  const int64_t item = int64_t{blockIdx.x} * threads + threadIdx.x;
  const int64_t token = item / pairs;
  const int pair = static_cast<int>(item % pairs);
  wait_for_previous();
  if (item >= count) return;
  constexpr double per_turn = 0.15915494309189533577;  // 1 / (2 pi)
  const double turns =
      static_cast<double>(positions[token]) * static_cast<double>(inverse_frequencies[pair]) * per_turn;
  double sine;
  double cosine;
  sincospi(2.0 * (turns - rint(turns)), &sine, &cosine);
  table[token * stride + pair] = static_cast<float>(cosine * static_cast<double>(factor));
  table[token * stride + pairs + pair] = static_cast<float>(sine * static_cast<double>(factor));
}

void rope_table(Queue queue, Tensor table, Tensor positions, Tensor inverse_frequencies, float factor) {
  const int pairs = inverse_frequencies.dims[0];
  const int64_t count = int64_t{table.dims[0]} * pairs;
  launch(queue, fill_table, blocks_for(count), threads, 0, table.as<float>(), table.strides[0], positions.as<int32_t>(),
         inverse_frequencies.as<float>(), count, pairs, factor);
}

struct Shape {
  int64_t x_stride, table_stride;
  int64_t items;  // of all threads
  int heads, head_dim, pairs;
};

/// A thread rotates `width` pairs of a head.
template <int width, bool interleaved, typename T>
__global__ void __launch_bounds__(threads) rotate(T* x, const float* table, Shape shape) {
  allow_next();
  const int64_t item = int64_t{blockIdx.x} * threads + threadIdx.x;
  const int of_head = shape.pairs / width;
  const int pair = static_cast<int>(item % of_head) * width;
  const int64_t token = item / of_head / shape.heads;
  const int head = static_cast<int>(item / of_head % shape.heads);
  x += token * shape.x_stride + int64_t{head} * shape.head_dim;
  table += token * shape.table_stride + pair;
  wait_for_previous();
  if (item >= shape.items) return;
  float cosines[width];
  float sines[width];
  load_floats(cosines, table);
  load_floats(sines, table + shape.pairs);
  if constexpr (interleaved) {
    constexpr int at_once = width == 1 ? 1 : 2 * width;
    float values[2 * width];
    load_floats<at_once>(values, x + 2 * pair);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float a = values[2 * i];
      const float b = values[2 * i + 1];
      values[2 * i] = a * cosines[i] - b * sines[i];
      values[2 * i + 1] = b * cosines[i] + a * sines[i];
    }
    store_floats<at_once>(x + 2 * pair, values);
  } else {
    float first[width];
    float second[width];
    load_floats(first, x + pair);
    load_floats(second, x + shape.pairs + pair);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float a = first[i];
      const float b = second[i];
      first[i] = a * cosines[i] - b * sines[i];
      second[i] = b * cosines[i] + a * sines[i];
    }
    store_floats(x + pair, first);
    store_floats(x + shape.pairs + pair, second);
  }
}

void rope(Queue queue, Tensor x, Tensor table, int head_dim, bool interleaved) {
  Shape shape{x.strides[0], table.strides[0], 0, x.dims[1] / head_dim, head_dim, table.dims[1] / 2};
  visit_activation(x.dtype, [&]<typename T>(T) {
    constexpr int wide = vector_of<T>;
    const bool whole = shape.pairs % wide == 0 && head_dim % wide == 0 && aligned_rows({x, table});
    shape.items = int64_t{x.dims[0]} * shape.heads * (shape.pairs / (whole ? wide : 1));
    auto kernel = interleaved ? rotate<1, true, T> : rotate<1, false, T>;
    if (whole) kernel = interleaved ? rotate<wide, true, T> : rotate<wide, false, T>;
    launch(queue, kernel, blocks_for(shape.items), threads, 0, x.as<T>(), table.as<float>(), shape);
  });
}

const bool table_added = kernels::rope_table.add(DeviceKind::cuda, rope_table);
const bool added = kernels::rope.add(DeviceKind::cuda, rope);

}  // namespace
}  // namespace quern::cuda
