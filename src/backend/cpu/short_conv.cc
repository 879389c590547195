#include "ops/short_conv.h"

#include "backend/cpu/simd.h"
#include "base/thread_pool.h"

namespace quern::QUERN_ISA {
namespace {

/// So many neighbouring tokens of one row.
struct Run {
  int32_t begin, end, row;
  int32_t position;  // of the first
};

/// One vector of channels, from the run's first token to its last.
template <int taps>
void convolve(Tensor y, Tensor x, const ShortConvWeights& weights, float* state, const Run& run, int32_t channel) {
  const int64_t channels = x.dims[1];
  Floats w[taps];
  for (int j = 0; j < taps; ++j) w[j] = load(weights.taps.as<float>() + j * channels + channel);
  const Floats bias = weights.bias ? load(weights.bias.as<float>() + channel) : Floats{};
  Floats past[taps - 1] = {};
  for (int j = 0; j + 1 < taps && run.position > 0; ++j) past[j] = load(state + j * channels + channel);
  for (int32_t t = run.begin; t < run.end; ++t) {
    const Floats now = load(x.row<float>(t) + channel);
    Floats sum = bias;
    for (int j = 0; j + 1 < taps; ++j) sum = fma(past[j], w[j], sum);
    sum = fma(now, w[taps - 1], sum);
    for (int j = 0; j + 2 < taps; ++j) past[j] = past[j + 1];
    past[taps - 2] = now;
    store(y.row<float>(t) + channel, weights.silu ? sum * sigmoid(sum) : sum);
  }
  for (int j = 0; j + 1 < taps; ++j) store(state + j * channels + channel, past[j]);
}

void short_conv(Queue queue, Tensor y, Tensor x, const ShortConvWeights& weights, const RowState& state,
                const Segments& segments) {
  constexpr int32_t piece = 64;  // channels of one unit of work
  const int32_t channels = x.dims[1];
  const int64_t pieces = (channels + piece - 1) / piece;
  const auto kernel = weights.taps.dims[0] == 2 ? convolve<2> : weights.taps.dims[0] == 3 ? convolve<3> : convolve<4>;
  auto& pool = *static_cast<ThreadPool*>(queue.native);
  pool.parallel_for(segments.rows.dims[0] * pieces, 4, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t segment = i / pieces;
      const int32_t* start = segments.starts.as<int32_t>() + segment;
      const Run run{start[0], start[1], segments.rows.as<int32_t>()[segment],
                    segments.positions.as<int32_t>()[start[0]]};
      const int32_t begin = static_cast<int32_t>(i % pieces) * piece;
      const int32_t end = begin + piece < channels ? begin + piece : channels;
      for (int32_t channel = begin; channel < end; channel += lanes) {
        if (run.position < 0) {
          for (int32_t t = run.begin; t < run.end; ++t) store(y.row<float>(t) + channel, Floats{});
        } else {
          kernel(y, x, weights, state.of(run.row), run, channel);
        }
      }
    }
  });
}

const bool added = kernels::short_conv.add(DeviceKind::cpu, Isa::QUERN_ISA, short_conv);

}  // namespace
}  // namespace quern::QUERN_ISA
