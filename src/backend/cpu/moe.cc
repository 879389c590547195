#include "ops/moe.h"

#include <algorithm>
#include <cmath>

#include "base/thread_pool.h"
#include "ops/select.h"

namespace quern::QUERN_ISA {
namespace {

/// The expert of largest logit among those that come after `last` in the order of (logit descending, number ascending).
int32_t next_best(const float* logits, int32_t experts, int32_t last) {
  int32_t best = -1;
  for (int32_t e = 0; e < experts; ++e) {
    const bool is_after = last < 0 || logits[e] < logits[last] || (logits[e] == logits[last] && e > last);
    if (is_after && (best < 0 || logits[e] > logits[best])) best = e;
  }
  // A logit that is no number has no order: the row's result is none either.
  return best < 0 ? 0 : best;
}

/// Best experts and their weights of one token; `chosen` gets the experts.
void choose(const float* logits, int32_t experts, const RouterRule& rule, int32_t* chosen, float* weights) {
  int32_t last = -1;
  for (int32_t k = 0; k < rule.used; ++k) {
    chosen[k] = last = next_best(logits, experts, last);
  }
  float sum = 0.0F;
  if (rule.renormalize) {
    for (int32_t k = 0; k < rule.used; ++k) sum += std::exp(logits[chosen[k]] - logits[chosen[0]]);
  } else {
    for (int32_t e = 0; e < experts; ++e) sum += std::exp(logits[e] - logits[chosen[0]]);
  }
  for (int32_t k = 0; k < rule.used; ++k) {
    weights[k] = std::exp(logits[chosen[k]] - logits[chosen[0]]) / sum * rule.scale;
  }
}

/// Experts of all but the best groups can no longer be chosen.
void keep_best_groups(float* choice, int32_t experts, const RouterRule& rule) {
  const int32_t size = experts / rule.groups;
  float of_groups[32];
  for (int32_t g = 0; g < rule.groups; ++g) {
    float first = -INFINITY;
    float second = -INFINITY;
    for (int32_t e = g * size; e < (g + 1) * size; ++e) {
      second = std::max(second, std::min(first, choice[e]));
      first = std::max(first, choice[e]);
    }
    of_groups[g] = rule.group_score == RouterRule::GroupScore::best ? first : first + second;
  }
  bool kept[32] = {};
  int32_t last = -1;
  for (int32_t n = 0; n < rule.used_groups; ++n) {
    last = next_best(of_groups, rule.groups, last);
    kept[last] = true;
  }
  for (int32_t e = 0; e < experts; ++e) choice[e] = kept[e / size] ? choice[e] : -INFINITY;
}

/// The same where experts are not chosen by their logits; `choice` gets what they are chosen by.
void choose_by_scores(const float* logits, float* choice, const float* bias, int32_t experts, const RouterRule& rule,
                      int32_t* chosen, float* weights) {
  const bool sigmoid = rule.score == RouterRule::Score::sigmoid;
  const float largest = sigmoid ? 0.0F : *std::max_element(logits, logits + experts);
  float sum = 0.0F;
  for (int32_t e = 0; e < experts; ++e) sum += std::exp(logits[e] - largest);
  const auto score = [&](int32_t e) {
    return sigmoid ? 1.0F / (1.0F + std::exp(-logits[e])) : std::exp(logits[e] - largest) / sum;
  };
  for (int32_t e = 0; e < experts; ++e) choice[e] = score(e) + (bias != nullptr ? bias[e] : 0.0F);
  if (rule.used_groups < rule.groups) keep_best_groups(choice, experts, rule);
  int32_t last = -1;
  float total = 1e-20F;  // scores may all be zero
  for (int32_t k = 0; k < rule.used; ++k) {
    chosen[k] = last = next_best(choice, experts, last);
    weights[k] = score(last);
    total += weights[k];
  }
  const float factor = rule.renormalize ? rule.scale / total : rule.scale;
  for (int32_t k = 0; k < rule.used; ++k) weights[k] *= factor;
}

void route(Queue /*queue*/, const Routing& routing, Tensor chosen, Tensor choice, Tensor logits, const RouterRule& rule,
           const RouterNumbers& numbers) {
  const int32_t tokens = logits.dims[0];
  const int32_t experts = logits.dims[1];
  const int32_t used = routing.places.dims[1];
  auto* const starts = routing.starts.as<int32_t>();
  for (int32_t e = 0; e <= experts; ++e) starts[e] = 0;
  for (int32_t t = 0; t < tokens; ++t) {
    int32_t* const of_token = chosen.row<int32_t>(t);
    float* const weights = routing.weights.row<float>(t);
    if (choice) {
      const auto* const bias = numbers.bias ? numbers.bias.as<float>() : nullptr;
      choose_by_scores(logits.row<float>(t), choice.row<float>(t), bias, experts, rule, of_token, weights);
    } else {
      choose(logits.row<float>(t), experts, rule, of_token, weights);
    }
    for (int32_t k = 0; k < used; ++k) {
      ++starts[of_token[k] + 1];
      if (numbers.factors) weights[k] *= numbers.factors.as<float>()[of_token[k]];
    }
  }
  for (int32_t e = 0; e < experts; ++e) starts[e + 1] += starts[e];
  // A counting sort; each start moves to the end of its expert while it runs, which is the start of the next one.
  for (int32_t t = 0; t < tokens; ++t) {
    for (int32_t k = 0; k < used; ++k) {
      const int32_t pair = starts[chosen.row<int32_t>(t)[k]]++;
      routing.tokens.as<int32_t>()[pair] = t;
      routing.places.row<int32_t>(t)[k] = pair;
    }
  }
  for (int32_t e = experts; e > 0; --e) starts[e] = starts[e - 1];
  starts[0] = 0;
}

/// The room that any expert needs if all pairs go to it; a file may give experts different formats.
void expert_linear_scratch(Queue queue, const Matrix* matrices, int32_t experts, int32_t pairs, int64_t& bytes) {
  bytes = 0;
  for (int32_t e = 0; e < experts; ++e) {
    int64_t of_expert = 0;
    kernels::linear_scratch.find(DeviceKind::cpu)(queue, matrices[e], pairs, of_expert);
    bytes = std::max(bytes, of_expert);
  }
}

void expert_linear(Queue queue, Tensor y, Tensor x, const Matrix* matrices, const Routing& routing,
                   std::byte* scratch) {
  const auto* const starts = routing.starts.as<int32_t>();
  const auto linear = kernels::linear.find(DeviceKind::cpu);
  for (int32_t e = 0; e + 1 < routing.starts.dims[0]; ++e) {
    const int32_t count = starts[e + 1] - starts[e];
    if (count == 0) continue;
    linear(queue, y.rows(starts[e], count), x.rows(starts[e], count), matrices[e], false, scratch);
  }
}

/// The pairs' inputs and products, then what the products need.
struct GatedScratch {
  int64_t inputs, products, linear;
};

GatedScratch gated_scratch(Queue queue, Tensor x, const Matrix* matrices, const Routing& routing) {
  const int32_t pairs = routing.tokens.dims[0];
  const auto bytes = [&](int64_t cols) { return (pairs * cols * dtype_bytes(x.dtype) + 63) / 64 * 64; };
  GatedScratch sizes{bytes(x.dims[1]), bytes(matrices[0].rows), 0};
  expert_linear_scratch(queue, matrices, routing.starts.dims[0] - 1, pairs, sizes.linear);
  return sizes;
}

void expert_gated_scratch(Queue queue, Tensor x, const Matrix* matrices, const Routing& routing, int64_t& bytes) {
  const GatedScratch sizes = gated_scratch(queue, x, matrices, routing);
  bytes = sizes.inputs + sizes.products + sizes.linear;
}

/// One after the other.
void expert_gated(Queue queue, Tensor y, Tensor x, const Matrix* matrices, const Routing& routing,
                  Activation activation, const Matrix* /*next*/, std::byte* scratch) {
  const GatedScratch sizes = gated_scratch(queue, x, matrices, routing);
  const int32_t pairs = routing.tokens.dims[0];
  const Tensor inputs = Tensor::dense(scratch, x.dtype, pairs, x.dims[1]);
  const Tensor products = Tensor::dense(scratch + sizes.inputs, x.dtype, pairs, matrices[0].rows);
  kernels::select_rows.find(DeviceKind::cpu)(queue, inputs, x, routing.tokens);
  expert_linear(queue, products, inputs, matrices, routing, scratch + sizes.inputs + sizes.products);
  kernels::gated.find(DeviceKind::cpu)(queue, y, products, activation);
}

void combine(Queue queue, Tensor y, Tensor x, const Routing& routing, bool accumulate) {
  auto& pool = *static_cast<ThreadPool*>(queue.native);
  const int32_t dim = y.dims[1];
  pool.parallel_for(y.dims[0], 8, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int32_t* places = routing.places.row<int32_t>(t);
      const float* weights = routing.weights.row<float>(t);
      float* out = y.row<float>(t);
      for (int32_t i = 0; i < dim; ++i) {
        float sum = 0.0F;
        for (int32_t k = 0; k < routing.places.dims[1]; ++k) sum += weights[k] * x.row<float>(places[k])[i];
        out[i] = accumulate ? out[i] + sum : sum;
      }
    }
  });
}

const bool route_added = kernels::route.add(DeviceKind::cpu, Isa::QUERN_ISA, route);
const bool scratch_added = kernels::expert_linear_scratch.add(DeviceKind::cpu, Isa::QUERN_ISA, expert_linear_scratch);
const bool linear_added = kernels::expert_linear.add(DeviceKind::cpu, Isa::QUERN_ISA, expert_linear);
const bool gated_added = kernels::expert_gated.add(DeviceKind::cpu, Isa::QUERN_ISA, expert_gated);
const bool gated_scratch_added =
    kernels::expert_gated_scratch.add(DeviceKind::cpu, Isa::QUERN_ISA, expert_gated_scratch);
const bool combine_added = kernels::combine.add(DeviceKind::cpu, Isa::QUERN_ISA, combine);

}  // namespace
}  // namespace quern::QUERN_ISA
