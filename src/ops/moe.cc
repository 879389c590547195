#include "ops/moe.h"

#include <cmath>

#include "ops/cost.h"

namespace quern {
namespace {

/// Of the experts as many are read as pairs that fall on them at random meet.
Cost cost_of(DeviceKind device, Tensor y, Tensor x, const Matrix* matrices, const Routing& routing) {
  const Matrix& matrix = matrices[0];
  const double experts = routing.starts.dims[0] - 1;
  const double pairs = routing.tokens.dims[0];
  const double met = experts * (1 - std::pow(1 - 1 / experts, pairs));
  Cost cost{.rows = matrix.rows, .cols = matrix.cols};
  cost.bytes = bytes_of(x) + bytes_of(y);
  for (int i = 0; i < matrix.count; ++i) {
    const Weight& part = matrix.parts[i];
    cost.bytes += met * static_cast<double>(packed_bytes(device, part.format, part.rows, part.cols));
    cost.eight_bit = cost.eight_bit || part.format == FormatId::f8 || part.format == FormatId::f8_block;
  }
  cost.flops = 2.0 * pairs * matrix.rows * matrix.cols;
  return cost;
}

}  // namespace

Routing route(Exec& exec, Tensor logits, const RouterRule& rule, const RouterNumbers& numbers) {
  CHECK(logits.rank == 2 && logits.dtype == Dtype::f32);
  const int32_t tokens = logits.dims[0];
  const int32_t experts = logits.dims[1];
  CHECK(rule.groups > 0 && rule.groups <= 32 && experts % rule.groups == 0);
  CHECK(rule.used_groups > 0 && rule.used_groups <= rule.groups);
  CHECK(rule.group_score == RouterRule::GroupScore::best || experts / rule.groups >= 2);
  CHECK(rule.used > 0 && rule.used <= experts / rule.groups * rule.used_groups);
  for (const Tensor& own : {numbers.bias, numbers.factors}) {
    CHECK(!own || (own.dtype == Dtype::f32 && own.dims[0] == experts));
  }
  const Routing routing{exec.arena.tensor(Dtype::i32, tokens * rule.used), exec.arena.tensor(Dtype::i32, experts + 1),
                        exec.arena.tensor(Dtype::i32, tokens, rule.used),
                        exec.arena.tensor(Dtype::f32, tokens, rule.used)};
  const Arena::Scope scope(exec.arena);
  const Tensor chosen = exec.arena.tensor(Dtype::i32, tokens, rule.used);
  const bool by_logits = rule.score == RouterRule::Score::softmax && rule.used_groups == rule.groups && !numbers.bias;
  const Tensor choice = by_logits ? Tensor{} : exec.arena.tensor(Dtype::f32, tokens, experts);
  tell_bytes(exec, logits, routing.tokens, routing.starts, routing.places, routing.weights);
  kernels::route(exec, routing, chosen, choice, logits, rule, numbers);
  return routing;
}

Tensor expert_linear(Exec& exec, Tensor x, const Matrix* matrices, const Routing& routing) {
  CHECK(x.rank == 2 && x.dims[0] == routing.tokens.dims[0] && x.dims[1] == matrices[0].cols);
  const Tensor y = exec.arena.tensor(exec.activations, x.dims[0], matrices[0].rows);
  const Arena::Scope scope(exec.arena);
  int64_t bytes = 0;
  kernels::expert_linear_scratch.find(exec.queue.kind)(exec.queue, matrices, routing.starts.dims[0] - 1, x.dims[0],
                                                       bytes);
  tell_cost(exec, [&] { return cost_of(exec.queue.kind, y, x, matrices, routing); });
  kernels::expert_linear(exec, y, x, matrices, routing, exec.arena.take(bytes));
  return y;
}

Tensor expert_gated(Exec& exec, Tensor x, const Matrix* matrices, const Routing& routing, Activation activation,
                    const Matrix* next) {
  CHECK(x.rank == 2 && x.dtype == exec.activations && x.dims[1] == matrices[0].cols && x.strides[1] == 1);
  CHECK(x.dims[0] == routing.places.dims[0] && matrices[0].rows % 2 == 0);
  const Tensor y = exec.arena.tensor(exec.activations, routing.tokens.dims[0], matrices[0].rows / 2);
  const Arena::Scope scope(exec.arena);
  int64_t bytes = 0;
  kernels::expert_gated_scratch.find(exec.queue.kind)(exec.queue, x, matrices, routing, bytes);
  tell_cost(exec, [&] { return cost_of(exec.queue.kind, y, x, matrices, routing); });
  kernels::expert_gated(exec, y, x, matrices, routing, activation, next, exec.arena.take(bytes));
  return y;
}

void combine(Exec& exec, Tensor y, Tensor x, const Routing& routing, bool accumulate) {
  CHECK(y.rank == 2 && x.rank == 2 && y.dims[1] == x.dims[1] && y.dims[0] == routing.places.dims[0]);
  CHECK(x.dims[0] == routing.tokens.dims[0] && y.dtype == Dtype::f32 && x.dtype == exec.activations);
  tell_bytes(exec, y, x, routing.places, routing.weights);
  kernels::combine(exec, y, x, routing, accumulate);
}

}  // namespace quern
