#include "backend/cuda/chain.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <span>
#include <utility>

#include "backend/cuda/chain_records.h"
#include "backend/cuda/vectors.h"
#include "ops/gated_linear.h"
#include "ops/rms_norm.h"
#include "ops/select.h"

namespace quern::cuda {
namespace {

constexpr int least_products = 4;
constexpr int most_norm_dims = 16 * chain_threads;
constexpr int most_shared = 227 << 10;
constexpr int most_x_bytes = 72 << 10;  // leaves room for a whole program and three slots of each ring

bool has_bulk_copies() {
  static const bool has = [] {
    int major = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    return major >= 9;
  }();
  return has;
}

int aligned(int bytes) { return (bytes + 127) / 128 * 128; }

/// What a format's lines are, and bytes of what is made of x for it.
struct Lines {
  int height = 0;  // rows; 0: not done here
  int line_bytes = 0;
  int lead_bytes = -1;
  int piece_bytes = chain_row_piece;
  int header_bytes = 0;
  int pieces_of_header = 1;
  int x_bytes = 0;
};

template <typename Format>
Lines lines_of(Dtype activations, int cols) {
  Lines lines;
  if constexpr (Format::id == FormatId::f8 || Format::id == FormatId::f16 || Format::id == FormatId::bf16) {
    const Dtype own = Format::id == FormatId::f16 ? Dtype::f16 : Dtype::bf16;
    if (Format::id != FormatId::f8 && own != activations) return lines;
    lines.height = 1;
    lines.line_bytes = static_cast<int>(panel_bytes<Format>(cols));
    lines.x_bytes = Format::id == FormatId::f8 ? (cols + 511) / 512 * 512 * 2 : 2 * cols;
  } else if constexpr (requires { Packed<Format>::record_bytes; }) {
    constexpr int record_bytes = Packed<Format>::record_bytes;
    constexpr int each = 2 * record_bytes + panel_height * Packed<Format>::header <= chain_slot_bytes ? 2 : 1;
    lines.height = panel_height;
    lines.line_bytes = static_cast<int>(panel_bytes<Format>(cols));
    lines.lead_bytes = static_cast<int>(headers_bytes<Format>(cols));
    lines.piece_bytes = each * record_bytes;
    lines.header_bytes = panel_height * Packed<Format>::header;
    lines.pieces_of_header = 2 / each;
    lines.x_bytes = records_of(cols) * StreamStage<Format>::x_unit_bytes;
  }
  return lines;
}

Lines lines_of(FormatId format, Dtype activations, int cols) {
  Lines lines;
  visit_format(format, [&]<typename Format>(Format) { lines = lines_of<Format>(activations, cols); });
  return lines;
}

bool is_dense_row(const Tensor& x) { return x.rank == 2 && x.dims[0] == 1 && aligned_rows({x}); }

/// The number of a shape in a table of `count`; -1 where there is no room for another.
template <typename Shape, size_t size>
int number_of(Shape (&table)[size], int& count, const Shape& shape) {
  for (int i = 0; i < count; ++i) {
    if (table[i] == shape) return i;
  }
  if (count == static_cast<int>(size)) return -1;
  table[count] = shape;
  return count++;
}

}  // namespace

/// What is going to be one launch.
class Chain::Program {
 public:
  /// False if there is no room.
  bool add(const Recorded& recorded) {
    if (program_.records == ChainProgram::most_records) return false;
    int shape = 0;
    if (const auto* product = std::get_if<ChainProduct>(&recorded.shape)) {
      shape = number_of(program_.product, products_, *product);
    } else if (const auto* attention = std::get_if<ChainAttention>(&recorded.shape)) {
      shape = number_of(program_.attention, attentions_, *attention);
    }
    if (shape < 0) return false;
    program_.record[program_.records] = recorded.record;
    program_.record[program_.records++].shape = static_cast<uint8_t>(shape);
    x_bytes_ = std::max(x_bytes_, recorded.x_bytes);
    slot_bytes_ = std::max(slot_bytes_, recorded.slot_bytes);
    return true;
  }
  void launch(const Queue& queue, Dtype activations) {
    if (program_.records > 0) {
      program_.slot_bytes = aligned(slot_bytes_);
      program_.x_at = aligned(ChainLayout::program_at + program_.bytes());
      program_.ring_at = program_.x_at + aligned(x_bytes_);
      const int rings = chain_warps * program_.slot_bytes;
      program_.slots = std::min(chain_slots, (most_shared - program_.ring_at) / rings);
      program_.flags = native(queue).flags;
      program_.arrivals = native(queue).arrivals;
      const auto launch = activations == Dtype::f16 ? launch_chain_f16 : launch_chain_bf16;
      launch(queue, program_, program_.ring_at + program_.slots * rings);
    }
    *this = Program();
  }

 private:
  ChainProgram program_{};
  int products_ = 0;
  int attentions_ = 0;
  int x_bytes_ = 0;
  int slot_bytes_ = 0;
};

bool Chain::takes(const Queue& queue, Tensor x) const {
  return !running_ && !queue.batch_invariant && has_bulk_copies() && is_dense_row(x) &&
         (kept_.empty() || queue.native == queue_.native);
}

void Chain::keep(const Queue& queue, Kept kept) {
  queue_ = queue;
  last_is_norm_ = last_is_rope_ = false;
  kept_.push_back(std::move(kept));
}

bool Chain::keep_norm(const Queue& queue, Tensor y, Tensor x, Tensor weight, float eps) {
  if (!takes(queue, x) || !is_dense_row(y) || x.dtype != Dtype::f32 || dtype_bytes(y.dtype) != 2) return false;
  if (x.dims[1] % 8 != 0 || !aligned_rows({weight})) return false;
  Kept kept;
  kept.alone = [=] { kernels::rms_norm.find(DeviceKind::cuda)(queue, y, x, weight, eps); };
  keep(queue, std::move(kept));
  norm_ = {y, x, weight, eps};
  last_is_norm_ = true;
  return true;
}

bool Chain::record_products(Kept& kept, Tensor y, Tensor x, const Matrix& matrix, bool accumulate, ChainSource source,
                            Activation activation) {
  if (x.dtype == Dtype::f32 || matrix.cols % 8 != 0 || y.rank != 2 || y.dims[0] != 1) return false;
  if (y.dtype != Dtype::f32 && y.dtype != x.dtype) return false;
  const bool normed = source == ChainSource::plain && last_is_norm_ && norm_.y.data == x.data &&
                      norm_.y.dims[1] == x.dims[1] && norm_.y.dtype == x.dtype;
  bool done[3] = {};
  for (int first = 0; first < matrix.count; ++first) {
    if (done[first]) continue;
    const FormatId format = matrix.parts[first].format;
    const Lines lines = lines_of(format, x.dtype, matrix.cols);
    if (lines.height == 0 || lines.x_bytes > most_x_bytes) return false;
    ChainProduct shape{};
    ChainRecord record{.kind = ChainKind::product, .shape = 0, .waits = first == 0, .product = {}};
    int32_t row = 0;
    for (int i = 0; i < matrix.count; row += matrix.parts[i++].rows) {
      const Weight& part = matrix.parts[i];
      if (part.format != format) continue;
      done[i] = true;
      const int32_t before = shape.parts == 0 ? 0 : shape.lines_end[shape.parts - 1];
      record.product.data[shape.parts] = part.data;
      shape.rows[shape.parts] = part.rows;
      shape.first_row[shape.parts] = row;
      shape.lines_end[shape.parts++] = before + (part.rows + lines.height - 1) / lines.height;
    }
    shape.cols = matrix.cols;
    shape.line_bytes = lines.line_bytes;
    shape.lead_bytes = lines.lead_bytes;
    shape.piece_bytes = lines.piece_bytes;
    shape.pieces = (lines.line_bytes - std::max(lines.lead_bytes, 0) + lines.piece_bytes - 1) / lines.piece_bytes;
    shape.header_bytes = lines.header_bytes;
    shape.pieces_of_header = lines.pieces_of_header;
    shape.eps = normed ? norm_.eps : 0.0F;
    shape.format = format;
    shape.source = normed ? ChainSource::norm : source;
    shape.activation = activation;
    shape.result = y.dtype;
    shape.accumulate = accumulate;
    record.product.x = normed ? norm_.x.data : x.data;
    record.product.norm = normed ? norm_.weight.as<float>() : nullptr;
    record.product.normed = normed ? norm_.y.data : nullptr;
    record.product.y = y.data;
    record.product.scale = matrix.scale ? matrix.scale.as<float>() : nullptr;
    record.product.bias = matrix.bias ? matrix.bias.as<float>() : nullptr;
    if (shape.lines_end[shape.parts - 1] > chain_lines) return false;
    if (normed && matrix.cols > most_norm_dims) return false;
    kept.recorded.push_back({record, shape, lines.x_bytes, lines.piece_bytes + lines.header_bytes});
  }
  if (normed) kept_.back().done_by_next = true;
  activations_ = x.dtype;
  return true;
}

bool Chain::keep_linear(const Queue& queue, Tensor y, Tensor x, const Matrix& matrix, bool accumulate,
                        std::byte* scratch) {
  Kept kept;
  if (!takes(queue, x) || !record_products(kept, y, x, matrix, accumulate, ChainSource::plain, Activation::silu)) {
    return false;
  }
  kept.alone = [=] { kernels::linear.find(DeviceKind::cuda)(queue, y, x, matrix, accumulate, scratch); };
  keep(queue, std::move(kept));
  return true;
}

bool Chain::keep_gated_linear(const Queue& queue, Tensor y, Tensor gate_up, Activation activation, const Matrix& matrix,
                              bool accumulate, std::byte* scratch) {
  Kept kept;
  if (activation != Activation::silu && activation != Activation::gelu_tanh) return false;
  if (!takes(queue, gate_up) ||
      !record_products(kept, y, gate_up, matrix, accumulate, ChainSource::gated, activation)) {
    return false;
  }
  kept.alone = [=] {
    kernels::gated_linear.find(DeviceKind::cuda)(queue, y, gate_up, activation, matrix, accumulate, scratch);
  };
  keep(queue, std::move(kept));
  return true;
}

bool Chain::keep_rope(const Queue& queue, Tensor q, Tensor k, Tensor v, const HeadTransform& transform,
                      const PagedKv& kv, const Segments& segments) {
  if (!takes(queue, q) || !is_dense_row(k) || !is_dense_row(v) || q.dtype == Dtype::f32) return false;
  Kept kept;
  kept.alone = [=] { kernels::rope_and_write_kv.find(DeviceKind::cuda)(queue, q, k, v, transform, kv, segments); };
  keep(queue, std::move(kept));
  rope_ = {q, k, v, transform};
  last_is_rope_ = true;
  return true;
}

bool Chain::keep_attention(const Queue& queue, Tensor out, Tensor q, const PagedKv& kv, const Segments& segments,
                           const AttentionParams& params, std::byte* scratch) {
  if (!takes(queue, q) || !last_is_rope_ || rope_.q.data != q.data || segments.rows.dims[0] != 1) return false;
  if (kv.head_dim != 64 && kv.head_dim != 128 && kv.head_dim != 256) return false;
  if (!std::has_single_bit(static_cast<unsigned>(kv.page_tokens))) return false;
  if (!params.causal || (kv.dtype != q.dtype && kv.dtype != Dtype::f8)) return false;
  const int group = params.heads / kv.heads;
  const int tasks = kv.heads * ((group + chain_queries - 1) / chain_queries);
  if (tasks > max_arrivals) return false;
  const HeadTransform& transform = rope_.transform;
  const Tensor& table = transform.table;
  ChainAttention shape{.pages = Pages(kv),
                       .sight = Sight(params),
                       .row = segments.rows.as<int32_t>(),
                       .position = segments.positions.as<int32_t>(),
                       .table = table ? table.as<float>() : nullptr,
                       .partials = reinterpret_cast<float*>(scratch),
                       .page_shift = std::countr_zero(static_cast<unsigned>(kv.page_tokens)),
                       .pairs = table ? table.dims[1] / 2 : 0,
                       .group = group,
                       .tasks_of_head = (group + chain_queries - 1) / chain_queries,
                       .norm_eps = transform.eps,
                       .interleaved = transform.interleaved,
                       .f8 = kv.dtype == Dtype::f8};
  ChainRecord record{.kind = ChainKind::attention, .shape = 0, .waits = true, .attention = {}};
  record.attention = {.layer = shape.pages.layer,
                      .k_scale = shape.pages.k_scale,
                      .v_scale = shape.pages.v_scale,
                      .q = q.data,
                      .k = rope_.k.data,
                      .v = rope_.v.data,
                      .q_norm = transform.q_norm ? transform.q_norm.as<float>() : nullptr,
                      .k_norm = transform.k_norm ? transform.k_norm.as<float>() : nullptr,
                      .sinks = params.sinks ? params.sinks.as<float>() : nullptr,
                      .out = out.data};
  shape.pages.layer = nullptr;
  shape.pages.k_scale = shape.pages.v_scale = nullptr;
  Kept kept;
  kept.recorded.push_back({record, shape, chain_heads_bytes(kv.head_dim), 0});
  kept_.back().done_by_next = true;
  kept.alone = [=] { kernels::attention.find(DeviceKind::cuda)(queue, out, q, kv, segments, params, scratch); };
  keep(queue, std::move(kept));
  return true;
}

bool Chain::keep_select(const Queue& queue, Tensor y, Tensor x, Tensor indices) {
  if (!takes(queue, x) || y.dims[0] != 1 || x.dims[1] * dtype_bytes(x.dtype) % 4 != 0) return false;
  ChainRecord record{.kind = ChainKind::select, .shape = 0, .waits = true, .select = {}};
  record.select = {x.as<uint32_t>(), y.as<uint32_t>(), int64_t{x.dims[1]} * dtype_bytes(x.dtype) / 4};
  Kept kept;
  kept.recorded.push_back({record, {}, 0, 0});
  kept.alone = [=] { kernels::select_rows.find(DeviceKind::cuda)(queue, y, x, indices); };
  keep(queue, std::move(kept));
  return true;
}

void Chain::run() {
  if (running_ || kept_.empty()) return;
  running_ = true;
  const struct Ran {
    bool& running;
    ~Ran() { running = false; }
  } ran{running_};
  last_is_norm_ = last_is_rope_ = false;
  const std::vector<Kept> all = std::exchange(kept_, {});
  const auto products = std::count_if(all.begin(), all.end(), [](const Kept& kept) {
    return !kept.recorded.empty() && kept.recorded.front().record.kind == ChainKind::product;
  });
  if (products < least_products) {
    for (const Kept& kept : all) kept.alone();
    return;
  }
  const auto program = std::make_unique<Program>();
  for (const Kept& kept : all) {
    if (kept.done_by_next) continue;
    if (kept.recorded.empty()) {
      program->launch(queue_, activations_);
      kept.alone();
    }
    for (const Recorded& recorded : kept.recorded) {
      if (program->add(recorded)) continue;
      program->launch(queue_, activations_);
      CHECK(program->add(recorded));
    }
  }
  program->launch(queue_, activations_);
}

cudaStream_t CudaQueue::stream() const {
  if (chain != nullptr) chain->run();
  return own_stream;
}

}  // namespace quern::cuda
