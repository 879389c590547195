// The state of a head is cut into stripes of 16 columns, [key dim, 16] each: columns do not know each other, and a
// stripe stays in the first cache while many tokens pass over it.
#include "ops/delta_net.h"

#include <cmath>
#include <cstring>

#include "backend/cpu/simd.h"
#include "base/thread_pool.h"

namespace quern::QUERN_ISA {
namespace {

constexpr int32_t stripe = 16;
constexpr int32_t block = 64;  // tokens that pass over one stripe before the next one's turn
constexpr int chains = 4;      // sums that run side by side

/// Of the tokens of a block.
struct Gates {
  float decay[block];
  float beta[block];
};

/// What one head reads and writes, from token to token.
struct Head {
  const float* q;
  const float* k;
  const float* v;
  float* y;
  int64_t q_stride, k_stride, v_stride, y_stride;
  int32_t key_dim;
};

float softplus(float x) { return x > 20.0F ? x : std::log1p(std::exp(x)); }

void fill_gates(Gates& gates, const DeltaNetInputs& inputs, const DeltaNetParams& params, int32_t head, int32_t first,
                int32_t count) {
  const float given = params.rates.as<float>()[head];
  const float rate = params.log_rates ? -std::exp(given) : given;
  const float bias = params.time_bias.as<float>()[head];
  for (int32_t i = 0; i < count; ++i) {
    gates.decay[i] = std::exp(rate * softplus(inputs.time.row<float>(first + i)[head] + bias));
    gates.beta[i] = 1.0F / (1.0F + std::exp(-inputs.beta.row<float>(first + i)[head]));
  }
}

/// One vector of columns: S^T k of the decayed state, what is new, and the state and its answer with that.
void pass(float* state, const Head& head, const Gates& gates, int32_t count, int32_t column) {
  for (int32_t t = 0; t < count; ++t) {
    const float* const q = head.q + t * head.q_stride;
    const float* const k = head.k + t * head.k_stride;
    Floats parts[chains] = {};
    for (int32_t i = 0; i < head.key_dim; i += chains) {
      for (int c = 0; c < chains; ++c) {
        parts[c] = fma(load(state + (i + c) * stripe), broadcast(k[i + c]), parts[c]);
      }
    }
    const Floats decay = broadcast(gates.decay[t]);
    const Floats known = ((parts[0] + parts[1]) + (parts[2] + parts[3])) * decay;
    const Floats news = (load(head.v + t * head.v_stride + column) - known) * broadcast(gates.beta[t]);
    for (Floats& part : parts) part = Floats{};
    for (int32_t i = 0; i < head.key_dim; i += chains) {
      for (int c = 0; c < chains; ++c) {
        const Floats value = fma(broadcast(k[i + c]), news, load(state + (i + c) * stripe) * decay);
        store(state + (i + c) * stripe, value);
        parts[c] = fma(value, broadcast(q[i + c]), parts[c]);
      }
    }
    store(head.y + t * head.y_stride + column, (parts[0] + parts[1]) + (parts[2] + parts[3]));
  }
}

struct Call {
  Tensor y;
  const DeltaNetInputs& inputs;
  const DeltaNetParams& params;
  int32_t key_dim, value_dim;
};

Head head_of(const Call& call, int32_t value_head, int32_t token) {
  const DeltaNetParams& params = call.params;
  const int32_t shared = params.value_heads / params.key_heads;
  const int64_t key = int64_t{params.tiled ? value_head % params.key_heads : value_head / shared} * call.key_dim;
  const int64_t value = int64_t{value_head} * call.value_dim;
  const auto& [q, k, v, beta, time] = call.inputs;
  return {q.row<float>(token) + key,
          k.row<float>(token) + key,
          v.row<float>(token) + value,
          call.y.row<float>(token) + value,
          q.strides[0],
          k.strides[0],
          v.strides[0],
          call.y.strides[0],
          call.key_dim};
}

void run_head(const Call& call, float* state, int32_t head, int32_t begin, int32_t end) {
  Gates gates;
  for (int32_t first = begin; first < end; first += block) {
    const int32_t count = end - first < block ? end - first : block;
    fill_gates(gates, call.inputs, call.params, head, first, count);
    const Head here = head_of(call, head, first);
    for (int32_t column = 0; column < call.value_dim; column += lanes) {
      const int32_t inside = column % stripe;
      pass(state + int64_t{column - inside} * call.key_dim + inside, here, gates, count, column);
    }
  }
}

void delta_net(Queue queue, Tensor y, const DeltaNetInputs& inputs, const DeltaNetParams& params, const RowState& state,
               const Segments& segments) {
  const Call call{y, inputs, params, inputs.q.dims[1] / params.key_heads, y.dims[1] / params.value_heads};
  const int64_t head_values = int64_t{call.key_dim} * call.value_dim;
  auto& pool = *static_cast<ThreadPool*>(queue.native);
  pool.parallel_for(int64_t{segments.rows.dims[0]} * params.value_heads, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t segment = i / params.value_heads;
      const auto head = static_cast<int32_t>(i % params.value_heads);
      const int32_t* start = segments.starts.as<int32_t>() + segment;
      const int32_t position = segments.positions.as<int32_t>()[start[0]];
      if (position < 0) {
        for (int32_t t = start[0]; t < start[1]; ++t) {
          std::memset(y.row<float>(t) + head * call.value_dim, 0, static_cast<size_t>(call.value_dim) * sizeof(float));
        }
        continue;
      }
      float* const own = state.of(segments.rows.as<int32_t>()[segment]) + head * head_values;
      if (position == 0) std::memset(own, 0, static_cast<size_t>(head_values) * sizeof(float));
      run_head(call, own, head, start[0], start[1]);
    }
  });
}

const bool added = kernels::delta_net.add(DeviceKind::cpu, Isa::QUERN_ISA, delta_net);

}  // namespace
}  // namespace quern::QUERN_ISA
