#include "ops/elementwise.h"

#include "backend/cpu/simd.h"
#include "base/thread_pool.h"

namespace quern::QUERN_ISA {
namespace {

/// Calls body(token, column, count) for pieces of rows of `x`.
template <typename Body>
void for_pieces(Queue queue, Tensor x, Body&& body) {
  constexpr int32_t piece = 4096;
  const int64_t pieces = (x.dims[1] + piece - 1) / piece;
  static_cast<ThreadPool*>(queue.native)->parallel_for(x.dims[0] * pieces, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int32_t first = static_cast<int32_t>(i % pieces) * piece;
      body(i / pieces, first, x.dims[1] - first < piece ? x.dims[1] - first : piece);
    }
  });
}

void add(Queue queue, Tensor x, Tensor y, float factor) {
  for_pieces(queue, x, [&](int64_t token, int32_t first, int32_t count) {
    float* sums = x.row<float>(token) + first;
    map(sums, sums, y.row<float>(token) + first, count, [&](Floats a, Floats b) { return a + factor * b; });
  });
}

void scale(Queue queue, Tensor x, float factor) {
  for_pieces(queue, x, [&](int64_t token, int32_t first, int32_t count) {
    float* values = x.row<float>(token) + first;
    map(values, values, count, [&](Floats a) { return a * factor; });
  });
}

void scale_by(Queue queue, Tensor x, Tensor factor) { scale(queue, x, *factor.as<float>()); }

void softcap(Queue queue, Tensor x, float cap) {
  for_pieces(queue, x, [&](int64_t token, int32_t first, int32_t count) {
    float* values = x.row<float>(token) + first;
    map(values, values, count, [&](Floats a) { return cap * tanh(a / cap); });
  });
}

void gate_rows(Queue queue, Tensor x, Tensor gate) {
  for_pieces(queue, x, [&](int64_t token, int32_t first, int32_t count) {
    float* values = x.row<float>(token) + first;
    const Floats factor = sigmoid(broadcast(*gate.row<float>(token)));
    map(values, values, count, [&](Floats a) { return a * factor; });
  });
}

void copy_heads(Queue queue, Tensor y, Tensor x) {
  static_cast<ThreadPool*>(queue.native)->parallel_for(x.dims[0], 4, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      for (int32_t head = 0; head < x.dims[1]; ++head) {
        std::memcpy(y.row<float>(token) + head * y.strides[1], x.row<float>(token) + head * x.strides[1],
                    static_cast<size_t>(x.dims[2]) * sizeof(float));
      }
    }
  });
}

/// Activations of the CPU are f32.
void convert(Queue queue, Tensor y, Tensor x) {
  for_pieces(queue, x, [&](int64_t token, int32_t first, int32_t count) {
    map(y.row<float>(token) + first, x.row<float>(token) + first, count, [](Floats a) { return a; });
  });
}

const bool add_added = kernels::add.add(DeviceKind::cpu, Isa::QUERN_ISA, add);
const bool convert_added = kernels::convert.add(DeviceKind::cpu, Isa::QUERN_ISA, convert);
const bool scale_added = kernels::scale.add(DeviceKind::cpu, Isa::QUERN_ISA, scale);
const bool scale_by_added = kernels::scale_by.add(DeviceKind::cpu, Isa::QUERN_ISA, scale_by);
const bool softcap_added = kernels::softcap.add(DeviceKind::cpu, Isa::QUERN_ISA, softcap);
const bool gate_added = kernels::gate_rows.add(DeviceKind::cpu, Isa::QUERN_ISA, gate_rows);
const bool copy_added = kernels::copy_heads.add(DeviceKind::cpu, Isa::QUERN_ISA, copy_heads);

}  // namespace
}  // namespace quern::QUERN_ISA
