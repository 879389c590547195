// expert_linear and expert_gated: neighbouring experts whose weights have one format and lie at equal distances are one
// launch.
#include <algorithm>

#include "backend/cuda/blas.h"
#include "backend/cuda/moe_experts.h"
#include "backend/cuda/packed.cuh"

namespace quern::cuda {
namespace {

// Measured: from so many pairs of an expert on mma tiles are worth while; from so many of all experts on those of
// moe_wide.cu are faster, and from so many of an expert in the mean also where weights have to become half floats.
constexpr int many_pairs = 64;
constexpr int wide_pairs = 16;
constexpr int dequantized_pairs = 24;
constexpr int64_t dequantized_bytes = int64_t{256} << 20;  // at once

bool same_formats(const Matrix& a, const Matrix& b) {
  for (int32_t p = 0; p < a.count; ++p) {
    if (a.parts[p].format != b.parts[p].format || a.parts[p].rows != b.parts[p].rows) return false;
  }
  return a.count == b.count;
}

/// Whether `b` lies after `a` as `second` after `first`.
bool same_steps(const Matrix& first, const Matrix& second, const Matrix& a, const Matrix& b) {
  for (int32_t p = 0; p < first.count; ++p) {
    if (b.parts[p].data - a.parts[p].data != second.parts[p].data - first.parts[p].data) return false;
  }
  return b.bias.data - a.bias.data == second.bias.data - first.bias.data &&
         b.scale.data - a.scale.data == second.scale.data - first.scale.data;
}

int32_t run_end(const Matrix* matrices, int32_t first, int32_t experts) {
  int32_t end = first + 1;
  while (end < experts && same_formats(matrices[first], matrices[end]) &&
         same_steps(matrices[first], matrices[first + 1], matrices[end - 1], matrices[end])) {
    ++end;
  }
  return end;
}

/// Whether matrix units can take a part.
template <typename Format, typename T>
constexpr bool has_units =
    !std::is_same_v<T, float> && Format::id != FormatId::f32 && Format::id != FormatId::f8_block && !is_coded<Format> &&
    (Format::id != FormatId::f16 || std::is_same_v<T, Half>) &&
    (Format::id != FormatId::bf16 || std::is_same_v<T, Bf16>);

/// Whether matrix units can take a part of this many columns for rows of x in whole 16 bytes.
bool takes_units(FormatId format, Dtype activations, int32_t cols) {
  bool takes = false;
  visit_activation(activations, [&]<typename T>(T) {
    visit_format(format, [&]<typename Format>(Format) {
      takes = has_units<Format, T> && cols % (is_float<Format> ? 64 : record_columns) == 0;
    });
  });
  return takes;
}

int64_t half_bytes(const Matrix& matrix) { return int64_t{2} * matrix.rows * matrix.cols; }

/// Experts whose weights are half floats at once.
int32_t experts_at_once(int32_t experts, int64_t bytes_each) {
  return static_cast<int32_t>(std::clamp<int64_t>(dequantized_bytes / bytes_each, 1, experts));
}

bool is_half(FormatId format) { return format == FormatId::f16 || format == FormatId::bf16; }

/// Memory that moe_wide.cu wants for what pairs read and for weights; none where it is not wanted.
struct WideMemory {
  int64_t inputs = 0;
  int64_t weights = 0;

  WideMemory(const Queue& queue, const Matrix* matrices, int32_t experts, int32_t pairs, bool gathers) {
    static const bool can = runs_warpgroups();
    const Matrix& matrix = matrices[0];
    const bool half = is_half(matrix.parts[0].format);
    if (!can || queue.batch_invariant || pairs < (half ? wide_pairs : dequantized_pairs * experts)) return;
    if (gathers) inputs = (int64_t{2} * pairs * matrix.cols + 255) / 256 * 256;
    if (!half) weights = experts_at_once(experts, half_bytes(matrix)) * half_bytes(matrix);
  }
  void give(ExpertJob& job, std::byte* scratch) const {
    if (inputs > 0) job.inputs = scratch;
    if (weights > 0) job.weights = scratch + inputs;
  }
};

/// Gives pairs of many their inputs in order.
void gather_inputs(const Queue& queue, ExpertJob& job) {
  if (job.tokens == nullptr) return;
  gather_pairs(queue, job.inputs, job);
  job.x = job.inputs;
  job.x_stride = job.cols;
  job.tokens = nullptr;
}

/// Multiplies by moe_wide.cu weights of the activations' type.
template <typename T>
bool by_wide(const Queue& queue, ExpertJob job) {
  if ((job.tokens != nullptr && job.inputs == nullptr) || !takes_wide_experts(job)) return false;
  gather_inputs(queue, job);
  return launch_wide_experts<T>(queue, job);
}

/// The same of others, which become that, some experts at a time.
template <typename T>
bool by_dequantized(const Queue& queue, FormatId format, Dtype activations, ExpertJob job) {
  if (job.weights == nullptr || (job.tokens != nullptr && job.inputs == nullptr)) return false;
  const int parts = job.gated ? 2 : 1;
  ExpertJob some = job;
  int64_t bytes = 0;
  for (int p = 0; p < parts; ++p) {
    some.parts[p].data = job.weights + bytes;
    bytes += int64_t{2} * job.parts[p].rows * job.cols;
  }
  for (int p = 0; p < parts; ++p) some.parts[p].step = bytes;
  some.experts = experts_at_once(job.experts, bytes);
  if (!takes_wide_experts(some)) return false;
  gather_inputs(queue, some);
  for (int32_t first = 0; first < job.experts; first += some.experts) {
    some.experts = std::min(some.experts, job.experts - first);
    some.slots = std::min(some.experts, job.pairs);
    some.starts = job.starts + first;
    if (job.first.scale != nullptr) some.first.scale = job.first.scale + first * job.scale_step;
    if (job.first.bias != nullptr) some.first.bias = job.first.bias + first * job.bias_step;
    for (int p = 0; p < parts; ++p) {
      const ExpertPart& part = job.parts[p];
      const Weight weight{
          format, Layout::packed, part.rows, job.cols, const_cast<std::byte*>(part.data) + first * part.step, nullptr};
      dequantize_all(queue, const_cast<std::byte*>(some.parts[p].data), activations, weight, part.step, some.experts,
                     bytes);
    }
    CHECK(launch_wide_experts<T>(queue, some));
  }
  return true;
}

void launch_part(const Queue& queue, FormatId format, Dtype activations, const ExpertJob& job, int pairs) {
  const bool aligned = job.x_stride % 8 == 0 && reinterpret_cast<uintptr_t>(job.x) % 16 == 0;
  const bool one_token = job.one_token && !queue.batch_invariant && (job.gated || job.parts[1].rows == 0);
  if (!aligned || !takes_units(format, activations, job.cols)) {
    return launch_plain_experts(queue, format, activations, job);
  }
  visit_activation(activations, [&]<typename T>(T) {
    visit_format(format, [&]<typename Format>(Format) {
      if constexpr (has_units<Format, T>) {
        if constexpr (in_rows<Format>) {
          if (one_token && launch_one_experts<Format, T>(queue, job)) return;
        }
        if constexpr (is_float<Format>) {
          if (!queue.batch_invariant && job.pairs >= wide_pairs && by_wide<T>(queue, job)) return;
          if (!queue.batch_invariant && pairs >= many_pairs) return launch_expert_tiles<T>(queue, job);
        } else if (by_dequantized<T>(queue, format, activations, job)) {
          return;
        }
        launch_experts<Format, T>(queue, job, pairs);
      }
    });
  });
}

/// Parts of one format are one launch.
void launch_run(const Queue& queue, const Matrix* matrices, ExpertJob job, Dtype activations, int pairs) {
  const Matrix& matrix = matrices[0];
  const Matrix& next = matrices[job.experts > 1 ? 1 : 0];
  if (matrix.scale) job.first.scale = matrix.scale.as<float>();
  if (matrix.scale) job.scale_step = next.scale.as<float>() - job.first.scale;
  if (matrix.bias) job.first.bias = matrix.bias.as<float>();
  if (matrix.bias) job.bias_step = next.bias.as<float>() - job.first.bias;
  for (int32_t p = 0; p < matrix.count;) {
    std::fill(std::begin(job.parts), std::end(job.parts), ExpertPart{});
    int32_t first_row = 0;
    for (int32_t i = 0; i < p; ++i) first_row += matrix.parts[i].rows;
    const FormatId format = matrix.parts[p].format;
    for (int count = 0; p < matrix.count && matrix.parts[p].format == format; ++p, ++count) {
      job.parts[count] = {matrix.parts[p].data, next.parts[p].data - matrix.parts[p].data, matrix.parts[p].rows,
                          first_row, 0};
      first_row += matrix.parts[p].rows;
    }
    launch_part(queue, format, activations, job, pairs);
  }
}

/// Tells the experts' blocks what is read after them, where that is one part of equal distances and stays in the cache.
void announce(ExpertJob& job, const Matrix* next) {
  constexpr int64_t cache_bytes = int64_t{32} << 20;
  job.next = nullptr;
  if (next == nullptr || next[0].count != 1 || run_end(next, 0, job.experts) < job.experts) return;
  const Weight& first = next[0].parts[0];
  job.next_bytes = packed_bytes(DeviceKind::cuda, first.format, first.rows, first.cols);
  job.next_step = next[job.experts > 1 ? 1 : 0].parts[0].data - first.data;
  if (job.slots * job.next_bytes <= cache_bytes) job.next = first.data;
}

/// `job` says how x is read and what is done to the products.
void multiply(Queue queue, Tensor y, Tensor x, const Matrix* matrices, const Routing& routing, ExpertJob job,
              const Matrix* next) {
  const int32_t experts = routing.starts.dims[0] - 1;
  const int32_t pairs = routing.tokens.dims[0];
  // No expert has more pairs than there are tokens; where there are many, most have about twice the mean at most.
  const int32_t usual = std::max(8, 2 * pairs / experts);
  job.cols = x.dims[1];
  job.x = x.data;
  job.y = y.data;
  job.x_stride = x.strides[0];
  job.y_stride = y.strides[0];
  for (int32_t first = 0; first < experts;) {
    const int32_t end = run_end(matrices, first, experts);
    job.experts = end - first;
    job.slots = std::min(job.experts, pairs);
    job.pairs = pairs;
    job.all_experts = experts;
    job.starts = routing.starts.as<int32_t>() + first;
    job.one_token = routing.places.dims[0] == 1 && job.experts == experts;
    announce(job, next == nullptr ? nullptr : next + first);
    launch_run(queue, matrices + first, job, x.dtype, std::min(routing.places.dims[0], usual));
    first = end;
  }
}

void expert_linear(Queue queue, Tensor y, Tensor x, const Matrix* matrices, const Routing& routing,
                   std::byte* scratch) {
  ExpertJob job;
  WideMemory(queue, matrices, routing.starts.dims[0] - 1, x.dims[0], false).give(job, scratch);
  multiply(queue, y, x, matrices, routing, job, nullptr);
}

/// Whether gate and up projections can be one launch that also applies the activation.
bool fuses(Tensor x, const Matrix* matrices, int32_t experts) {
  for (int32_t e = 0; e < experts; ++e) {
    const Matrix& matrix = matrices[e];
    const Weight& gate = matrix.parts[0];
    if (matrix.count != 2 || gate.format != matrix.parts[1].format || gate.rows != matrix.parts[1].rows) return false;
    if (!takes_units(gate.format, x.dtype, x.dims[1])) return false;
  }
  return x.strides[0] % 8 == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

/// Also the products, where activations are a launch of their own.
void expert_gated_scratch(Queue queue, Tensor x, const Matrix* matrices, const Routing& routing, int64_t& bytes) {
  const int32_t experts = routing.starts.dims[0] - 1;
  const int32_t pairs = routing.tokens.dims[0];
  const WideMemory wide(queue, matrices, experts, pairs, true);
  bytes = wide.inputs + wide.weights;
  if (!fuses(x, matrices, experts)) bytes += int64_t{pairs} * matrices[0].rows * dtype_bytes(x.dtype);
}

void expert_gated(Queue queue, Tensor y, Tensor x, const Matrix* matrices, const Routing& routing,
                  Activation activation, const Matrix* next, std::byte* scratch) {
  ExpertJob job;
  const int32_t experts = routing.starts.dims[0] - 1;
  const WideMemory wide(queue, matrices, experts, routing.tokens.dims[0], true);
  job.tokens = routing.tokens.as<int32_t>();
  wide.give(job, scratch);
  if (fuses(x, matrices, experts)) {
    job.gated = activation;
    return multiply(queue, y, x, matrices, routing, job, next);
  }
  const Tensor products = Tensor::dense(scratch + wide.inputs + wide.weights, x.dtype, y.dims[0], matrices[0].rows);
  multiply(queue, products, x, matrices, routing, job, nullptr);
  kernels::gated.find(DeviceKind::cuda)(queue, y, products, activation);
}

void expert_linear_scratch(Queue queue, const Matrix* matrices, int32_t experts, int32_t pairs, int64_t& bytes) {
  bytes = WideMemory(queue, matrices, experts, pairs, false).weights;
}

const bool scratch_added = kernels::expert_linear_scratch.add(DeviceKind::cuda, expert_linear_scratch);
const bool added = kernels::expert_linear.add(DeviceKind::cuda, expert_linear);
const bool gated_scratch_added = kernels::expert_gated_scratch.add(DeviceKind::cuda, expert_gated_scratch);
const bool gated_added = kernels::expert_gated.add(DeviceKind::cuda, expert_gated);

}  // namespace
}  // namespace quern::cuda
