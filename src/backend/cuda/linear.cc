// linear on a GPU: which way a product takes.
//   very few tokens, or one                  the kernels of linear_stream.h and, of one token and weights in rows,
//                                            linear_one.h, limited by reading the weight
//   few tokens, or a batch-invariant queue   the kernel of linear_skinny.h; weights in rows, on GPUs that can, that of
//                                            linear_tiles.h
//   many tokens                              the library, over weights made half floats a part at a time; a gate and an
//                                            up projection that are gated next, linear_gated.h
//   float activations, mixed float types     plain sums; so are few tokens of formats of codes (formats/codes.h)
// Of 8-bit floats with scales of rows linear_tiles.h and the library multiply activations that are made such too.
#include "ops/linear.h"

#include <algorithm>
#include <bit>

#include "backend/cuda/blas.h"
#include "backend/cuda/floats.h"
#include "backend/cuda/linear_dequantize.h"
#include "backend/cuda/linear_f8.h"
#include "backend/cuda/linear_gated.h"
#include "backend/cuda/linear_one.h"
#include "backend/cuda/linear_skinny.h"
#include "backend/cuda/linear_stream.h"
#include "backend/cuda/linear_tiles.h"
#include "backend/cuda/packed.cuh"

namespace quern::cuda {
namespace {

constexpr int64_t dequantized_bytes = int64_t{128} << 20;  // at once: the library is faster with more rows

Dtype dtype_of(FormatId format) {
  switch (format) {
    case FormatId::f32: return Dtype::f32;
    case FormatId::f16: return Dtype::f16;
    case FormatId::bf16: return Dtype::bf16;
    default: return Dtype::u8;
  }
}
bool quantized(FormatId format) { return dtype_of(format) == Dtype::u8; }
bool coded(FormatId format) {
  bool is = false;
  visit_format(format, [&]<typename Format>(Format) { is = is_coded<Format>; });
  return is;
}

/// The most tokens for which linear_skinny.h is faster than the library, or 8-bit floats than activations of them:
/// measured.
int32_t most_skinny_tokens(const Matrix& matrix, const Weight& part) {
  constexpr int64_t large_bytes = int64_t{40} << 20;
  if (part.format == FormatId::f8 && matrix.scale) return most_tiles_tokens(Dtype::f8) > 0 ? 1 : 16;
  if (part.format == FormatId::f8) return 16;
  if (coded(part.format)) return 8;  // plain sums read the weight for every four tokens
  if (quantized(part.format)) return 32;
  return int64_t{part.rows} * part.cols * 2 >= large_bytes ? 1 : 4;
}

bool wants_library(const Queue& queue, const Matrix& matrix, const Weight& part, int32_t tokens) {
  return tokens > most_skinny_tokens(matrix, part) && !queue.batch_invariant && native(queue).blas != nullptr;
}

/// Rows that are dequantized at once.
int32_t rows_at_once(int32_t rows, int32_t cols) {
  const int64_t fit = dequantized_bytes / (2 * int64_t{cols}) / panel_height * panel_height;
  return static_cast<int32_t>(std::clamp<int64_t>(fit, panel_height, rows));
}

/// Whether a part is multiplied with activations of 8-bit floats, if the library can.
bool wants_f8(const Queue& queue, const Matrix& matrix, const Weight& part, int32_t tokens) {
  return part.format == FormatId::f8 && matrix.scale && wants_library(queue, matrix, part, tokens);
}

/// Activations as 8-bit floats, at the front of scratch.
struct F8Activations {
  std::byte* data = nullptr;
  float* scales = nullptr;
  int64_t bytes = 0;

  F8Activations(const Queue& queue, const Matrix& matrix, int32_t tokens, std::byte* memory) {
    const bool wanted = std::any_of(matrix.parts, matrix.parts + matrix.count,
                                    [&](const Weight& part) { return wants_f8(queue, matrix, part, tokens); });
    if (!wanted) return;
    const int64_t data_bytes = int64_t{tokens} * f8_columns(matrix.cols);
    bytes = (data_bytes + tokens * dtype_bytes(Dtype::f32) + 255) / 256 * 256;
    data = memory;
    scales = reinterpret_cast<float*>(memory + data_bytes);
  }
};

void linear_scratch(Queue queue, const Matrix& matrix, int32_t tokens, int64_t& bytes) {
  bytes = 0;
  for (int i = 0; i < matrix.count; ++i) {
    const Weight& part = matrix.parts[i];
    if (part.format == FormatId::f32 || !wants_library(queue, matrix, part, tokens)) continue;
    bytes = std::max(bytes, int64_t{rows_at_once(matrix.rows, part.cols)} * part.cols * 2);
  }
  bytes += F8Activations(queue, matrix, tokens, nullptr).bytes;
}

/// A product's operands.
struct Call {
  Queue queue;
  Tensor y;
  Tensor x;
  const Matrix& matrix;
  bool accumulate;
  F8Activations f8;
  std::byte* scratch;

  /// Of the result's columns from `column` on.
  RowFactors factors(int32_t column) const {
    return {matrix.scale ? matrix.scale.as<float>() + column : nullptr,
            matrix.bias ? matrix.bias.as<float>() + column : nullptr};
  }
};

/// A product of rows of a weight with x, or with what is in f8.
struct Operands {
  Product product;
  std::byte* y = nullptr;
  const std::byte* x = nullptr;
  const std::byte* w = nullptr;
};

Operands operands_of(const Call& call, int32_t column, const std::byte* weight, int32_t rows, bool f8) {
  Operands all{{}, call.y.columns(column, rows).data, f8 ? call.f8.data : call.x.data, weight};
  Product& product = all.product;
  product.type = f8 ? Dtype::f8 : call.x.dtype;
  product.result = call.y.dtype;
  product.tokens = call.x.dims[0];
  product.rows = rows;
  product.cols = f8 ? f8_columns(call.matrix.cols) : call.matrix.cols;
  product.x_stride = f8 ? product.cols : call.x.strides[0];
  product.y_stride = call.y.strides[0];
  product.accumulate = call.accumulate;
  if (!f8) return all;
  product.x_scales = call.f8.scales;
  product.w_scales = call.factors(column).scale;
  return all;
}

/// Multiplies by linear_tiles.h, with the bias, if that can.
bool by_tiles(const Call& call, int32_t column, Operands all) {
  all.product.bias = call.factors(column).bias;
  return multiply_tiles(call.queue, all.product, all.y, all.x, all.w);
}

/// Multiplies by the library, the bias being there; false if it cannot, which is never but of 8-bit floats.
bool multiply(const Call& call, Operands all) {
  all.product.accumulate |= static_cast<bool>(call.matrix.bias);
  launch_held(call.queue);
  return native(call.queue).blas->multiply(native(call.queue), all.product, all.y, all.x, all.w);
}

/// Whether a part that is not quantized can be multiplied by linear_tiles.h.
bool takes_tiles(const Call& call, int32_t column, const Weight& part) {
  if (call.queue.batch_invariant || native(call.queue).blas == nullptr || call.matrix.scale) return false;
  const Operands all = operands_of(call, column, part.data, part.rows, false);
  return all.product.tokens > 1 && dtype_of(part.format) == call.x.dtype &&
         takes_tiles(all.product, all.y, all.x, all.w);
}

enum class Way : uint8_t { plain, skinny, parts };

Way way_of(const Call& call, int32_t column, const Weight& part) {
  const Dtype weights = dtype_of(part.format);
  if (call.x.dtype == Dtype::f32 || weights == Dtype::f32) return Way::plain;
  if (wants_library(call.queue, call.matrix, part, call.x.dims[0]) || takes_tiles(call, column, part)) {
    return Way::parts;
  }
  if (coded(part.format)) return Way::plain;
  return quantized(part.format) || weights == call.x.dtype ? Way::skinny : Way::plain;
}

/// Parts of one format in rows that lie one behind the other are one matrix.
int adjacent_parts(const Matrix& matrix, int first, int32_t& rows) {
  const Weight& begin = matrix.parts[first];
  rows = begin.rows;
  int next = first + 1;
  for (; next < matrix.count; ++next) {
    const Weight& part = matrix.parts[next];
    const int64_t row_bytes = part.format == FormatId::f8 ? panel_bytes<F8>(part.cols) : int64_t{part.cols} * 2;
    if (part.format != begin.format || part.data != begin.data + rows * row_bytes) break;
    rows += part.rows;
  }
  return next - first;
}

/// Holds the product of a gate and an up projection with many tokens, so that it can gate its results itself.
bool hold_gated(const Call& call, const Operands& all) {
  const Matrix& matrix = call.matrix;
  const bool both = matrix.count == 2 && all.product.rows == matrix.rows && matrix.parts[0].rows * 2 == matrix.rows;
  if (!both || matrix.bias || call.accumulate || call.y.dtype != call.x.dtype) return false;
  const GatedProduct gated{
      all.product.type, all.product.tokens, matrix.parts[0].rows, all.product.cols, all.product.x_stride, all.x, all.w};
  if (!takes_gated(gated)) return false;
  hold(call.queue, {.result = call.y.data,
                    .launch =
                        [all](const Queue& queue) {
                          const CudaQueue& here = native(queue);
                          CHECK(here.blas->multiply(here, all.product, all.y, all.x, all.w));
                        },
                    .only_gated = [gated](const Queue& queue, Tensor y,
                                          Activation activation) { gated_product(queue, gated, y, activation); }});
  return true;
}

/// Multiplies parts from `first` on by linear_tiles.h or the library; returns how many it took.
int by_parts(const Call& call, int first, int32_t column) {
  const Weight& part = call.matrix.parts[first];
  const bool ready = dtype_of(part.format) == call.x.dtype && !call.matrix.scale;
  const bool f8 = wants_f8(call.queue, call.matrix, part, call.x.dims[0]);
  int32_t rows = part.rows;
  const int count = ready || f8 ? adjacent_parts(call.matrix, first, rows) : 1;
  const Operands all = operands_of(call, column, part.data, rows, f8);
  if ((ready || f8) && by_tiles(call, column, all)) return count;
  if (ready && hold_gated(call, all)) return count;
  if (call.matrix.bias) {
    Tensor bias = call.matrix.bias;
    bias.data += int64_t{column} * dtype_bytes(Dtype::f32);
    begin_with_bias(call.queue, call.y.columns(column, rows), bias, call.accumulate);
  }
  if ((ready || f8) && multiply(call, all)) return count;
  Weight whole = part;
  whole.rows = rows;
  const int32_t step = rows_at_once(rows, part.cols);
  for (int32_t begin = 0; begin < rows; begin += step) {
    const int32_t some = std::min(step, rows - begin);
    dequantize(call.queue, call.scratch, call.x.dtype, whole, call.factors(column).scale, begin, some);
    multiply(call, operands_of(call, column + begin, call.scratch, some, false));
  }
  return count;
}

/// The tiles of `panels` times 16 rows of a job's parts.
int32_t count_tiles(SkinnyJob& job, int panels) {
  const int32_t height = panel_height * panels;
  int32_t tiles = 0;
  for (int i = 0; i < job.parts; ++i) {
    tiles += (job.rows[i] + height - 1) / height;
    job.tiles_end[i] = tiles;
  }
  return tiles;
}

/// A number of blocks and their clusters; `used` is how much of them has work in all rounds.
struct Spread {
  int32_t blocks = 1;
  int cluster = 1;
  float used = 0.0F;
};

/// The cluster that leaves the fewest blocks without work in the last round.
Spread spread(int32_t tiles, int32_t blocks, int32_t units, int row_groups) {
  Spread best{blocks};
  const int least_units = 2 * skinny_warps / row_groups;
  for (int cluster = 1; cluster <= (has_clusters() ? 8 : 1); cluster *= 2) {
    if (cluster > 1 && units / cluster < least_units) break;
    const int32_t places = blocks / cluster;
    const int32_t rounds = (tiles + places - 1) / places;
    const float cost = cluster == 8 ? 0.1F : 0.01F * static_cast<float>(cluster - 1);
    const float used = static_cast<float>(tiles) / static_cast<float>(rounds * places) - cost;
    if (used > best.used + 0.01F) best = {blocks, cluster, used};
  }
  return best;
}

/// More tokens and fewer bytes of weights, higher tiles: x is read once for each tile.
int row_groups_of(const Call& call, FormatId format) {
  const int32_t tokens = call.x.dims[0];
  if (call.queue.batch_invariant) return 4;
  return tokens <= 2 ? 1 : tokens <= 4 ? 2 : tokens <= 8 || !quantized(format) ? 4 : 8;
}

/// How much of x is in shared memory at once.
template <typename Format>
int place_x(SkinnyJob& job) {
  const int tiles = token_tiles(job.tokens);
  const int ahead = units_ahead<Format>(tiles);
  const int units_bytes = skinny_warps * ahead * row_tiles(tiles) * unit_bytes<Format>();
  constexpr int all_bytes = 17 << 10;
  constexpr int chunk_bytes = 8 << 10;
  const int turns = skinny_warps / job.row_groups;
  const int columns = turns * unit_columns<Format>;  // of a step
  const int step_bytes = job.tokens * columns * 2;
  job.steps = (job.share + turns - 1) / turns;
  job.chunk_steps = job.steps;
  job.x_buffers = 1;
  if (job.steps * step_bytes > all_bytes && job.steps > ahead) {
    const int most = std::max(ahead, chunk_bytes / step_bytes);
    const int even = (job.steps + job.steps / most - 1) / (job.steps / most);  // no short one at the end
    job.chunk_steps = even * step_bytes <= 2 * chunk_bytes ? even : most;
    job.x_buffers = 2;
  }
  job.x_pitch = job.chunk_steps * columns * 2 + 64;  // rows of x begin half of all banks apart
  return sums_bytes(tiles) + units_bytes + job.x_buffers * job.tokens * job.x_pitch;
}

/// With a batch-invariant queue nothing that the order of additions depends on changes with the number of tokens:
/// row_groups, cluster, share.
template <typename Format>
void launch_job(const Call& call, SkinnyJob job) {
  const bool invariant = call.queue.batch_invariant;
  const int tiles_of_tokens = token_tiles(job.tokens);
  const int32_t multiprocessors = native(call.queue).multiprocessors;
  const int32_t units = (job.cols + unit_columns<Format> - 1) / unit_columns<Format>;
  const int32_t blocks = skinny_blocks(tiles_of_tokens) * multiprocessors;
  Spread chosen = spread(count_tiles(job, job.row_groups), skinny_blocks(1) * multiprocessors, units, job.row_groups);
  const int32_t tiles = count_tiles(job, job.row_groups * row_tiles(tiles_of_tokens));
  if (!invariant) chosen = spread(tiles, blocks, units, job.row_groups);
  if (!invariant && job.tokens <= 4) {
    const Spread more = spread(tiles, skinny_residents(1) * multiprocessors, units, job.row_groups);
    if (more.used > chosen.used + 0.01F) chosen = more;
  }
  SkinnyLaunch launch;
  launch.cluster = chosen.cluster;
  launch.blocks = std::min(tiles, (invariant ? blocks : chosen.blocks) / launch.cluster) * launch.cluster;
  job.share = (units + launch.cluster - 1) / launch.cluster;
  launch.shared_bytes = place_x<Format>(job);
  if constexpr (!std::is_same_v<Format, BF16>) {
    if (call.x.dtype == Dtype::f16) launch_skinny<Format, Half>(call.queue, job, launch);
  }
  if constexpr (!std::is_same_v<Format, F16>) {
    if (call.x.dtype == Dtype::bf16) launch_skinny<Format, Bf16>(call.queue, job, launch);
  }
}

/// Weights of which a block has so many that its beginning and end count little.
template <typename Format>
bool is_long(const SkinnyJob& job) {
  constexpr int64_t long_bytes = int64_t{48} << 20;
  return job.tiles_end[job.parts - 1] * panel_bytes<Format>(job.cols) >= long_bytes;
}

/// Lays out a block's shared memory for a cluster of blocks; false if too little is left for the ring.
template <typename Format>
bool place_stream(SkinnyJob& job, StreamLaunch& launch) {
  using Stage = StreamStage<Format>;
  constexpr int barriers_bytes = 256;
  constexpr int least_ring_bytes = 56 << 10;
  job.share = (job.units + 2 * launch.cluster - 1) / (2 * launch.cluster) * 2;  // headers are of two units
  job.x_pitch = job.share * Stage::x_unit_bytes;
  launch.sums_at = barriers_bytes;
  launch.x_at = launch.sums_at + 2 * launch.cluster * stream_warps * job.tokens * panel_height * 4;
  launch.ring_at = (launch.x_at + job.tokens * job.x_pitch + 127) / 128 * 128;
  for (const int limit : {lone_bytes(), is_long<Format>(job) ? 224 << 10 : 0}) {
    for (int units = Stage::most_units; units >= stream_warps; units /= 2) {
      launch.stage_units = units;
      launch.stage_bytes = Stage::bytes(units);
      launch.stages = std::min((limit - launch.ring_at) / launch.stage_bytes, most_stream_stages);
      if (launch.stages < 4 || launch.stages * launch.stage_bytes < least_ring_bytes) continue;
      job.headers_at = units * Packed<Format>::record_bytes;
      launch.shared_bytes = std::max(lone_bytes(), launch.ring_at + launch.stages * launch.stage_bytes);
      return true;
    }
  }
  return false;
}

/// The cluster that leaves the fewest blocks without work in the last round.
StreamLaunch stream_shape(const Call& call, SkinnyJob& job) {
  const int32_t multiprocessors = native(call.queue).multiprocessors;
  job.row_groups = 1;
  const int32_t tiles = count_tiles(job, 1);
  StreamLaunch best;
  float best_used = 0.0F;
  for (int cluster = 1; cluster <= most_stream_cluster; cluster *= 2) {
    if (cluster > 1 && job.units / cluster < stream_warps) break;
    const int32_t places = multiprocessors / cluster;
    const int32_t rounds = (tiles + places - 1) / places;
    const float used =
        static_cast<float>(tiles) / static_cast<float>(rounds * places) - 0.03F * static_cast<float>(cluster - 1);
    if (used <= best_used) continue;
    best_used = used;
    best.cluster = cluster;
    best.blocks = std::min(tiles, places) * cluster;
  }
  return best;
}

/// Multiplies by linear_stream.h, where that was measured to be faster.
template <typename Format>
bool by_stream(const Call& call, SkinnyJob job) {
  if (!has_clusters() || call.queue.batch_invariant) return false;
  job.units = records_of(job.cols);
  StreamLaunch launch = stream_shape(call, job);
  if (job.tokens > (is_long<Format>(job) ? stream_tokens : 2) || !place_stream<Format>(job, launch)) return false;
  if (call.x.dtype == Dtype::f16)
    launch_stream<Format, Half>(call.queue, job, launch);
  else
    launch_stream<Format, Bf16>(call.queue, job, launch);
  return true;
}

/// Whether the product of one token is of a gate and an up projection.
bool may_be_gated(const Call& call, const SkinnyJob& job) {
  return call.matrix.count == 2 && job.parts == 2 && job.rows[0] == job.rows[1] && !job.accumulate &&
         job.result == call.x.dtype;
}

/// How many loads a warp does one after the other, if it multiplies groups of so many rows.
int lay_out_groups(const Call& call, OneJob& job, int group) {
  constexpr int beginning = 8;  // of a group: its sums and results
  job.steps = one_steps(job.data_bytes, group);
  int32_t groups = 0;
  for (int i = 0; i < job.parts; ++i) job.groups_end[i] = groups += (job.rows[i] + group - 1) / group;
  if (job.gated != nullptr) job.groups_end[0] = groups = (2 * job.rows[0] + group - 1) / group;
  const int32_t warps = native(call.queue).multiprocessors * one_warps;
  return (groups + warps - 1) / warps * (job.steps * one_loads + beginning);
}

template <typename Format>
void launch_one_job(const Queue& queue, Dtype activations, const OneJob& job, const OneLaunch& launch) {
  if constexpr (!std::is_same_v<Format, BF16>) {
    if (activations == Dtype::f16) launch_one<Format, Half>(queue, job, launch);
  }
  if constexpr (!std::is_same_v<Format, F16>) {
    if (activations == Dtype::bf16) launch_one<Format, Bf16>(queue, job, launch);
  }
}

/// Multiplies one token by linear_one.h, if its shared memory holds that; at once, or together with what comes next.
template <typename Format>
bool by_one(const Call& call, const SkinnyJob& all) {
  if (all.tokens != 1 || call.queue.batch_invariant) return false;
  OneJob job{};
  std::copy_n(all.data, 3, job.data);
  std::copy_n(all.rows, 3, job.rows);
  std::copy_n(all.first_row, 3, job.first_row);
  job.parts = all.parts;
  job.cols = all.cols;
  job.row_bytes = static_cast<int32_t>(panel_bytes<Format>(all.cols));
  job.data_bytes = one_data_bytes<Format>(all.cols);
  job.x_aligned = all.x_aligned;
  job.accumulate = all.accumulate;
  job.result = all.result;
  job.x = all.x;
  job.y = all.y;
  job.scale = all.scale;
  job.bias = all.bias;
  const Dtype activations = call.x.dtype;
  const auto shape_of = [&call](OneJob& of) {
    OneLaunch launch;
    launch.group = lay_out_groups(call, of, 2) < lay_out_groups(call, of, 4) ? 2 : 4;
    lay_out_groups(call, of, launch.group);
    launch.shared_bytes = std::max(lone_bytes(), one_x_bytes<Format>(of.steps, launch.group));
    return launch;
  };
  const OneLaunch launch = shape_of(job);
  if (launch.shared_bytes > most_one_shared) return false;
  // What a norm reads must not change before all blocks have read it: no product that adds to something takes it.
  if (!call.accumulate) job.norm = take_norm(call.queue, call.x);
  if (!may_be_gated(call, all)) {
    launch_one_job<Format>(call.queue, activations, job, launch);
    return true;
  }
  OneJob gated = job;
  gated.gated = job.y;  // until it is known
  const OneLaunch gated_launch = shape_of(gated);
  hold(call.queue, {.result = call.y.data,
                    .launch = [=](const Queue& queue) { launch_one_job<Format>(queue, activations, job, launch); },
                    .gated =
                        [=](const Queue& queue, Tensor y, Activation activation) mutable {
                          gated.gated = y.data;
                          gated.activation = activation;
                          launch_one_job<Format>(queue, activations, gated, gated_launch);
                        }});
  return true;
}

/// All parts of one format that are not done, in one launch.
void by_skinny(const Call& call, int first, const int32_t* columns, bool* done) {
  const FormatId format = call.matrix.parts[first].format;
  SkinnyJob job{};
  job.cols = call.matrix.cols;
  job.accumulate = call.accumulate;
  job.scale = call.factors(0).scale;
  job.bias = call.factors(0).bias;
  job.x_stride = call.x.strides[0];
  job.y_stride = call.y.strides[0];
  job.x_aligned = reinterpret_cast<uintptr_t>(call.x.data) % 16 == 0 && call.x.strides[0] % 8 == 0;
  job.result = call.y.dtype;
  job.row_groups = row_groups_of(call, format);
  for (int i = first; i < call.matrix.count; ++i) {
    const Weight& part = call.matrix.parts[i];
    if (part.format != format) continue;
    done[i] = true;
    job.data[job.parts] = part.data;
    job.rows[job.parts] = part.rows;
    job.first_row[job.parts++] = columns[i];
  }
  const int32_t most = call.queue.batch_invariant ? skinny_tokens / 2 : skinny_tokens;
  for (int32_t begin = 0; begin < call.x.dims[0]; begin += most) {
    job.tokens = std::min(most, call.x.dims[0] - begin);
    job.x = call.x.rows(begin, job.tokens).data;
    job.y = call.y.rows(begin, job.tokens).data;
    visit_format(format, [&]<typename Format>(Format) {
      if constexpr (std::is_same_v<Format, F32> || is_coded<Format>) {
        CHECK(false);
      } else {
        if constexpr (!in_rows<Format>) {
          if (by_stream<Format>(call, job)) return;
        } else if constexpr (Format::id != FormatId::f8_block) {
          if (by_one<Format>(call, job)) return;
        }
        launch_job<Format>(call, job);
      }
    });
  }
}

void linear(Queue queue, Tensor y, Tensor x, const Matrix& matrix, bool accumulate, std::byte* scratch) {
  const F8Activations f8(queue, matrix, x.dims[0], scratch);
  const Call call{queue, y, x, matrix, accumulate, f8, scratch + f8.bytes};
  if (f8.data != nullptr && x.dtype != Dtype::f32) {
    const NormBefore norm = take_norm(queue, x);
    if (norm.x != nullptr)
      quantize_normed(queue, f8.data, f8.scales, norm, x.dtype);
    else
      quantize_tokens(queue, f8.data, f8.scales, x);
  }
  int32_t columns[3] = {};
  for (int i = 1; i < matrix.count; ++i) columns[i] = columns[i - 1] + matrix.parts[i - 1].rows;
  bool done[3] = {};
  for (int i = 0; i < matrix.count; ++i) {
    const Weight& part = matrix.parts[i];
    if (done[i]) continue;
    switch (way_of(call, columns[i], part)) {
      case Way::skinny: by_skinny(call, i, columns, done); break;
      case Way::parts: {
        const int count = by_parts(call, i, columns[i]);
        std::fill_n(done + i, count, true);
        break;
      }
      case Way::plain:
        plain_linear(queue, y.columns(columns[i], part.rows), x, part, call.factors(columns[i]), accumulate);
        break;
    }
  }
}

const bool added =
    kernels::linear.add(DeviceKind::cuda, linear) && kernels::linear_scratch.add(DeviceKind::cuda, linear_scratch);

}  // namespace

int lone_bytes() {
  constexpr int reserved_bytes = 1 << 10;  // of each block
  static const int bytes = [] {
    int all = 0;
    cudaDeviceGetAttribute(&all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, 0);
    return all / 2 - reserved_bytes + 256;
  }();
  return bytes;
}

bool f8_linear_of_gated(const Queue& queue, Tensor y, Tensor gate_up, Activation activation, const Matrix& matrix,
                        bool accumulate, std::byte* scratch) {
  const int32_t tokens = gate_up.dims[0];
  if (matrix.count != 1 || matrix.bias || gate_up.dtype == Dtype::f32) return false;
  if (!wants_f8(queue, matrix, matrix.parts[0], tokens)) return false;
  const F8Activations f8(queue, matrix, tokens, scratch);
  if (!quantize_gated(queue, f8.data, f8.scales, gate_up, activation)) return false;
  const Tensor x = Tensor::dense(nullptr, gate_up.dtype, tokens, matrix.cols);  // what is multiplied is in f8
  const Call call{queue, y, x, matrix, accumulate, f8, scratch + f8.bytes};
  const Operands all = operands_of(call, 0, matrix.parts[0].data, matrix.rows, true);
  return by_tiles(call, 0, all) || multiply(call, all);
}

}  // namespace quern::cuda
