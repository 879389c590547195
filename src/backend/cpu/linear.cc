#include "ops/linear.h"

#include <algorithm>

#include "backend/cpu/linear_multiply.h"
#include "base/thread_pool.h"

namespace quern::QUERN_ISA {
namespace {

using panels::Activations;
using panels::Output;

/// Panels that a worker takes at a time: few enough that all finish together, enough that taking them costs nothing.
int64_t panels_at_a_time(int64_t count, int workers, int64_t products) {
  constexpr int64_t too_small = 1 << 15;  // multiply-adds that take less than starting the team
  constexpr int64_t enough = 1 << 17;     // that take about two microseconds
  if (products < too_small) return count;
  return std::clamp<int64_t>(std::min(count / (workers * 16), enough * count / products), 1, 4);
}

/// Panels [begin, end) of all panels of a matrix.
void multiply_panels(const Matrix& matrix, int64_t begin, int64_t end, const Activations& x, const Output& out) {
  int32_t row = 0;
  int64_t first = 0;
  for (int i = 0; i < matrix.count; ++i) {
    const Weight& part = matrix.parts[i];
    const int64_t last = first + panels::panel_count(part);
    const int64_t from = std::max(begin, first);
    const int64_t to = std::min(end, last);
    if (from < to) {
      Output of_part = out;
      of_part.data += row;
      if (of_part.bias != nullptr) of_part.bias += row;
      if (of_part.scale != nullptr) of_part.scale += row;
      panels::multiply(part, static_cast<int32_t>(from - first), static_cast<int32_t>(to - first), x, of_part);
    }
    row += part.rows;
    first = last;
  }
}

void linear_block(ThreadPool& pool, Tensor y, Tensor x, const Matrix& matrix, bool accumulate, std::byte* scratch) {
  const int32_t tokens = x.dims[0];
  const Activations prepared = panels::place_activations(matrix, tokens, scratch);
  constexpr int64_t elements_at_a_time = 1 << 11;  // take longer than starting the team
  pool.parallel_for(tokens, std::max<int64_t>(1, elements_at_a_time / matrix.cols), [&](int64_t begin, int64_t end) {
    for (auto token = static_cast<int32_t>(begin); token < end; ++token)
      panels::prepare_token(prepared, token, x.row<float>(token), matrix.cols);
  });
  int64_t count = 0;
  for (int i = 0; i < matrix.count; ++i) count += panels::panel_count(matrix.parts[i]);
  const int64_t products = int64_t{tokens} * matrix.rows * matrix.cols;
  const float* bias = matrix.bias ? matrix.bias.as<float>() : nullptr;
  const float* scale = matrix.scale ? matrix.scale.as<float>() : nullptr;
  const Output out{y.as<float>(), y.strides[0], scale, bias, accumulate};
  pool.parallel_for(count, panels_at_a_time(count, pool.size(), products),
                    [&](int64_t begin, int64_t end) { multiply_panels(matrix, begin, end, prepared, out); });
}

void linear(Queue queue, Tensor y, Tensor x, const Matrix& matrix, bool accumulate, std::byte* scratch) {
  auto& pool = *static_cast<ThreadPool*>(queue.native);
  const int32_t tokens = x.dims[0];
  const int32_t most = panels::block_tokens(matrix.cols);
  const int32_t blocks = (tokens + most - 1) / most;
  int32_t first = 0;
  for (int32_t block = 0; block < blocks; ++block) {
    const auto end = static_cast<int32_t>(int64_t{tokens} * (block + 1) / blocks);
    linear_block(pool, y.rows(first, end - first), x.rows(first, end - first), matrix, accumulate, scratch);
    first = end;
  }
}

void linear_scratch(Queue /*queue*/, const Matrix& matrix, int32_t tokens, int64_t& bytes) {
  bytes = panels::activation_bytes(matrix, std::min(tokens, panels::block_tokens(matrix.cols)));
}

const bool added = kernels::linear.add(DeviceKind::cpu, Isa::QUERN_ISA, linear) &&
                   kernels::linear_scratch.add(DeviceKind::cpu, Isa::QUERN_ISA, linear_scratch);

}  // namespace
}  // namespace quern::QUERN_ISA
