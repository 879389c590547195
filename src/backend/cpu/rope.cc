#include "ops/rope.h"

#include <cmath>

#include "backend/cpu/simd.h"
#include "base/thread_pool.h"

namespace quern::QUERN_ISA {
namespace {

void rope_table(Queue queue, Tensor table, Tensor positions, Tensor inverse_frequencies, float factor) {
  const int32_t pairs = inverse_frequencies.dims[0];
  auto& pool = *static_cast<ThreadPool*>(queue.native);
  pool.parallel_for(table.dims[0], 8, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      float* cosines = table.row<float>(token);
      const double position = positions.as<int32_t>()[token];
      for (int32_t i = 0; i < pairs; ++i) {
        const double angle = position * static_cast<double>(inverse_frequencies.as<float>()[i]);
        cosines[i] = static_cast<float>(std::cos(angle) * static_cast<double>(factor));
        cosines[pairs + i] = static_cast<float>(std::sin(angle) * static_cast<double>(factor));
      }
    }
  });
}

/// Pairs (i, i + pairs).
void rotate_halves(float* x, const float* cosines, const float* sines, int32_t pairs) {
  int32_t i = 0;
  for (; i + lanes <= pairs; i += lanes) {
    const Floats a = load(x + i);
    const Floats b = load(x + pairs + i);
    const Floats c = load(cosines + i);
    const Floats s = load(sines + i);
    store(x + i, a * c - b * s);
    store(x + pairs + i, b * c + a * s);
  }
  for (; i < pairs; ++i) {
    const float a = x[i];
    const float b = x[pairs + i];
    x[i] = a * cosines[i] - b * sines[i];
    x[pairs + i] = b * cosines[i] + a * sines[i];
  }
}

/// Pairs (2i, 2i + 1).
void rotate_neighbours(float* x, const float* cosines, const float* sines, int32_t pairs) {
  for (int32_t i = 0; i < pairs; ++i) {
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    x[2 * i] = a * cosines[i] - b * sines[i];
    x[2 * i + 1] = b * cosines[i] + a * sines[i];
  }
}

void rope(Queue queue, Tensor x, Tensor table, int head_dim, bool interleaved) {
  const int32_t pairs = table.dims[1] / 2;
  const int32_t heads = x.dims[1] / head_dim;
  auto& pool = *static_cast<ThreadPool*>(queue.native);
  pool.parallel_for(x.dims[0], 4, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      const float* cosines = table.row<float>(token);
      for (int32_t head = 0; head < heads; ++head) {
        float* values = x.row<float>(token) + int64_t{head} * head_dim;
        (interleaved ? rotate_neighbours : rotate_halves)(values, cosines, cosines + pairs, pairs);
      }
    }
  });
}

const bool table_added = kernels::rope_table.add(DeviceKind::cpu, Isa::QUERN_ISA, rope_table);
const bool added = kernels::rope.add(DeviceKind::cpu, Isa::QUERN_ISA, rope);

}  // namespace
}  // namespace quern::QUERN_ISA
