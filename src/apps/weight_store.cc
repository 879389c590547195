#include "apps/weight_store.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <random>
#include <thread>
#include <tuple>

#include "formats/list.h"
#include "ops/linear.h"

namespace quern {
namespace {

constexpr int64_t alignment = 64;
constexpr int64_t task_bytes = int64_t{1}
                               << 20;  // of stored weights: enough to be worth handing out, little to wait for

constexpr int64_t pool_rows = 509;  // a prime, so that equal rows stand far apart
constexpr float pool_spread = 0.02F;
constexpr float pool_scale = 6.0F * pool_spread / e4m3_largest;  // of the rows of quantized random weights

int64_t plane_bytes(int64_t cols, int group, int bytes) { return (cols + group - 1) / group * bytes; }

int64_t stored_row_bytes(const Scheme& scheme, int64_t cols) { return cols / scheme.block_values * scheme.block_bytes; }
/// About as many bytes of a file hold a number of values.
int64_t stored_bytes(const Scheme& scheme, int64_t values) { return values * scheme.block_bytes / scheme.block_values; }

/// The values of one stored row as floats.
std::vector<float> decode_row(const Scheme& scheme, const std::byte* stored, int64_t cols) {
  std::vector<float> out;
  visit_format(scheme.format, [&]<typename Format>(Format) {
    const int64_t groups = (cols + Format::group - 1) / Format::group;
    std::vector<std::byte> data(static_cast<size_t>(groups * Format::data_bytes));
    std::vector<std::byte> scales(static_cast<size_t>(groups * Format::scale_bytes));
    scheme.convert_row(stored, cols, data.data(), scales.data());
    for (int64_t g = 0; g < groups; ++g) {
      const std::byte* const group_data = data.data() + g * Format::data_bytes;
      const std::byte* const group_scales = scales.data() + g * Format::scale_bytes;
      for (int i = 0; i < Format::group / 8; ++i) {
        const Eight eight = Format::decode8(Format::load8(group_data, i), Format::load_scales(group_scales, i), i);
        out.insert(out.end(), std::begin(eight.v), std::end(eight.v));
      }
    }
  });
  out.resize(static_cast<size_t>(cols));
  return out;
}

/// A row of 8-bit floats; returns its scale.
float quantize_row(const std::vector<float>& values, std::byte* data) {
  float largest = 0.0F;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  const float scale = largest > 0.0F ? largest / e4m3_largest : 1.0F;
  for (size_t i = 0; i < values.size(); ++i) data[i] = static_cast<std::byte>(f32_to_e4m3(values[i] / scale));
  return scale;
}

/// Tensors beside the weights that a model can do without: tables of rope, masks, scales of activations, and of caches
/// that are no 8-bit floats.
bool is_spare(std::string_view name) {
  for (const std::string_view ending :
       {"rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".input_scale", ".output_scale", ".q_scale",
        ".k_scale", ".v_scale", ".kv_scale", ".prob_scale"}) {
    if (name.ends_with(ending)) return true;
  }
  return false;
}

/// Whether a matrix decides where tokens go, or how much of something they get.
bool is_router(std::string_view name) {
  for (const std::string_view ending : {".gate.weight", ".router.weight", ".router.layer.weight", ".router.proj.weight",
                                        ".shared_expert_gate.weight"}) {
    if (name.ends_with(ending)) return true;
  }
  return false;
}

/// What columns become that are to be rows: floats stay as they are.
FormatId format_of_columns(FormatId stored) {
  const bool is_float = stored == FormatId::f32 || stored == FormatId::f16 || stored == FormatId::bf16;
  return is_float ? stored : FormatId::bf16;
}

/// The name without what some files put before it: "language_model.model.layers..." -> "model.layers...".
std::string plain(std::string_view name) {
  for (const std::string_view prefix : {"model.language_model.", "language_model.model."}) {
    if (name.starts_with(prefix)) return "model." + std::string(name.substr(prefix.size()));
  }
  for (const std::string_view prefix : {"language_model.", "transformer."}) {
    if (name.starts_with(prefix)) return std::string(name.substr(prefix.size()));
  }
  for (const std::string_view bare : {"layers.", "embed_tokens.", "norm."}) {
    if (name.starts_with(bare)) return "model." + std::string(name);
  }
  return std::string(name);
}

/// Applies a rule to a name; whether it was one for it.
bool rename(const NameRule& rule, std::string& name) {
  size_t at = name.find(rule.theirs);
  while (at != std::string::npos && at > 0 && name[at - 1] != '.') at = name.find(rule.theirs, at + 1);
  if (at == std::string::npos) return false;
  name.replace(at, rule.theirs.size(), rule.ours);
  return true;
}

/// The layer of a tensor of the decoder, or -1.
int layer_of(std::string_view name) {
  constexpr std::string_view prefix = "model.layers.";
  if (!name.starts_with(prefix)) return -1;
  int layer = -1;
  std::from_chars(name.data() + prefix.size(), name.data() + name.size(), layer);
  return layer;
}

}  // namespace

WeightStore::WeightStore(const Checkpoint& checkpoint, DeviceKind device, std::byte* base, Quantize quantize,
                         std::span<const NameRule> names)
    : checkpoint_(checkpoint), device_(device), base_(base), quantize_(quantize) {
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    std::string name = plain(tensor.name);
    bool transposed = false;
    for (const NameRule& rule : names) {
      if (rename(rule, name)) transposed = transposed || (rule.transposed && tensor.shape.size() == 2);
    }
    known_.emplace(std::move(name), Known{&tensor, transposed});
  }
}

WeightStore::Known WeightStore::find(std::string_view name) const {
  const auto found = known_.find(name);
  return found == known_.end() ? Known{} : found->second;
}

Result<const StoredTensor*> WeightStore::require(const std::string& name) const {
  if (const StoredTensor* tensor = find(name).tensor) return tensor;
  return Error{fmt::format("{}: tensor \"{}\" is missing", checkpoint_.path(), name)};
}

Result<Weight> WeightStore::weight(const std::string& name, int rows, int cols) {
  const bool transposed = find(name).transposed;
  return slice({.name = name,
                .shape = transposed ? std::vector<int64_t>{cols, rows} : std::vector<int64_t>{rows, cols},
                .rows = rows,
                .cols = cols,
                .transposed = transposed});
}

Result<Weight> WeightStore::slice(const WeightSlice& slice) {
  const int64_t last = (slice.rows - 1) / slice.run * int64_t{slice.step} + (slice.rows - 1) % slice.run;
  int64_t stored_rows = 1;
  for (size_t axis = 0; axis + 1 < slice.shape.size(); ++axis) stored_rows *= slice.shape[axis];
  CHECK(slice.first_row + (slice.transposed ? slice.cols : last + 1) <= stored_rows);
  CHECK(slice.transposed ? slice.first_column + last < slice.shape.back() : slice.cols == slice.shape.back());
  if (const auto format = checkpoint_.invented()) {
    return invent(slice.name, *format, slice.first_row, slice.rows, slice.cols);
  }
  return add_packing(slice);
}

Result<Weight> WeightStore::add_packing(const WeightSlice& slice) {
  ASSIGN_OR_RETURN(const StoredTensor* tensor, require(slice.name));
  ASSIGN_OR_RETURN(const Scheme* scheme, check_tensor(checkpoint_, *tensor, slice.shape));
  Packing packing{.tensor = tensor, .scheme = scheme, .first_row = slice.first_row, .to = {}, .scales = {}};
  ASSIGN_OR_RETURN(packing.scales, StoredScales::find(checkpoint_, *tensor));
  packing.step = slice.step;
  packing.run = slice.run;
  packing.first_column = slice.first_column;
  packing.transposed = slice.transposed;
  packing.quantized = !slice.transposed && to_quantize(plain(tensor->name), scheme->format, slice.cols);
  packing.to.format = slice.transposed             ? format_of_columns(scheme->format)
                      : packing.scales.in_blocks() ? FormatId::f8_block
                      : packing.quantized          ? FormatId::f8
                                                   : scheme->format;
  packing.to.rows = slice.rows;
  packing.to.cols = slice.cols;
  if (const int least = format_info(packing.to.format).least_columns; slice.cols % least != 0) {
    return Error{fmt::format("{}: tensor \"{}\" would give rows of {} values, expected a multiple of {}",
                             checkpoint_.path(), tensor->name, slice.cols, least)};
  }
  asked_.insert(tensor);
  if (packing.scales && asked_.insert(packing.scales.tensor()).second) TRY(packing.scales.check_values(checkpoint_));
  return add_packed(packing);
}

bool WeightStore::to_quantize(std::string_view name, FormatId format, int64_t cols) const {
  const bool is_float = format == FormatId::f32 || format == FormatId::f16 || format == FormatId::bf16;
  return quantize_ == Quantize::fp8 && is_float && cols % F8::group == 0 && layer_of(name) >= 0 && !is_router(name);
}

Weight WeightStore::invent(std::string_view name, FormatId format, int64_t first_row, int rows, int cols) {
  Packing packing{.tensor = nullptr, .scheme = nullptr, .first_row = first_row, .to = {}, .scales = {}};
  packing.quantized = to_quantize(name, format, cols);
  packing.to.format = packing.quantized ? FormatId::f8 : format;
  packing.to.rows = rows;
  packing.to.cols = cols;
  return add_packed(packing);
}

Weight WeightStore::add_packed(Packing packing) {
  Weight& to = packing.to;
  to.layout = Layout::packed;
  to.data = take(packed_bytes(device_, to.format, to.rows, to.cols));
  packings_.push_back(packing);
  return packings_.back().to;
}

Tensor WeightStore::scales(std::span<const Weight> parts) {
  std::vector<Packing*> packings;
  int32_t rows = 0;
  bool any = false;
  for (const Weight& part : parts) {
    const auto found = std::find_if(packings_.rbegin(), packings_.rend(),
                                    [&](const Packing& packing) { return packing.to.data == part.data; });
    CHECK(found != packings_.rend());
    packings.push_back(&*found);
    rows += part.rows;
    any = any || found->has_row_scales();
  }
  if (!any) return {};
  const Tensor all = Tensor::dense(take(int64_t{rows} * dtype_bytes(Dtype::f32)), Dtype::f32, rows);
  std::byte* to = all.data;
  for (Packing* packing : packings) {
    packing->row_scales = to;
    to += int64_t{packing->to.rows} * dtype_bytes(Dtype::f32);
  }
  return all;
}

Result<Tensor> WeightStore::spread(const std::string& name, int size) {
  if (checkpoint_.invented()) return vectors(std::array{NamedRows{name, size}}, 0.0F);
  ASSIGN_OR_RETURN(const StoredTensor* tensor, require(name));
  int64_t stored = 1;
  for (const int64_t dim : tensor->shape) stored *= dim;
  const Scheme* scheme = find_scheme(tensor->type);
  if ((stored != 1 && stored != size) || scheme == nullptr || scheme->block_values != 1) {
    return Error{fmt::format("{}: tensor \"{}\" holds {} values of {}, expected 1 or {}", checkpoint_.path(),
                             tensor->name, stored, tensor->type, size)};
  }
  const std::vector<float> values = decode_row(*scheme, tensor->bytes.data(), stored);
  const auto broken = std::find_if_not(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
  if (broken != values.end()) {
    return Error{fmt::format("{}: tensor \"{}\" has {} at [{}], expected finite numbers", checkpoint_.path(),
                             tensor->name, *broken, broken - values.begin())};
  }
  asked_.insert(tensor);
  std::byte* const to = take(int64_t{size} * dtype_bytes(Dtype::f32));
  vectors_.push_back({tensor, scheme, 0.0F, size, static_cast<int32_t>(stored), to});
  return Tensor::dense(to, Dtype::f32, size);
}

Result<Tensor> WeightStore::vectors(std::span<const NamedRows> parts, float offset) {
  int32_t size = 0;
  for (const NamedRows& part : parts) size += part.rows;
  const Tensor all = Tensor::dense(take(int64_t{size} * dtype_bytes(Dtype::f32)), Dtype::f32, size);
  std::byte* to = all.data;
  for (const NamedRows& part : parts) {
    if (checkpoint_.invented()) {
      vectors_.push_back({nullptr, nullptr, part.name.ends_with(".bias") ? 0.0F : 1.0F, part.rows, 0, to});
      to += int64_t{part.rows} * dtype_bytes(Dtype::f32);
      continue;
    }
    ASSIGN_OR_RETURN(const StoredTensor* tensor, require(part.name));
    ASSIGN_OR_RETURN(const Scheme* scheme, check_tensor(checkpoint_, *tensor, std::array{int64_t{part.rows}}));
    if (part.rows % scheme->block_values != 0) {
      return Error{fmt::format("{}: tensor \"{}\" of {} values cannot have type {}", checkpoint_.path(), tensor->name,
                               part.rows, tensor->type)};
    }
    vectors_.push_back({tensor, scheme, offset, part.rows, part.rows, to});
    asked_.insert(tensor);
    to += int64_t{part.rows} * dtype_bytes(Dtype::f32);
  }
  return all;
}

Result<Tensor> WeightStore::vector_slices(std::span<const VectorSlice> parts) {
  int32_t size = 0;
  for (const VectorSlice& part : parts) size += part.size;
  const Tensor all = Tensor::dense(take(int64_t{size} * dtype_bytes(Dtype::f32)), Dtype::f32, size);
  std::byte* to = all.data;
  for (const VectorSlice& part : parts) {
    CHECK(part.row < part.rows && part.first + (part.size - 1) * part.step < part.cols);
    Vector vector{.tensor = nullptr, .scheme = nullptr, .offset = 0, .size = part.size, .stored = part.size, .to = to};
    if (!checkpoint_.invented()) {
      ASSIGN_OR_RETURN(vector.tensor, require(part.name));
      const std::array<int64_t, 2> shape{part.rows, part.cols};
      ASSIGN_OR_RETURN(vector.scheme, check_tensor(checkpoint_, *vector.tensor, shape));
      if (vector.scheme->block_values != 1) {
        return Error{fmt::format("{}: tensor \"{}\" has type {}, expected floats", checkpoint_.path(),
                                 vector.tensor->name, vector.tensor->type)};
      }
      vector.first = part.row * part.cols + part.first;
      vector.step = part.step;
      asked_.insert(vector.tensor);
    }
    vectors_.push_back(vector);
    to += int64_t{part.size} * dtype_bytes(Dtype::f32);
  }
  return all;
}

Result<Tensor> WeightStore::transposed(const std::string& name, int rows, int cols) {
  const int32_t size = rows * cols;
  std::byte* const to = take(int64_t{size} * dtype_bytes(Dtype::f32));
  Vector vector{.tensor = nullptr, .scheme = nullptr, .offset = 1, .size = size, .stored = size, .to = to};
  if (!checkpoint_.invented()) {
    ASSIGN_OR_RETURN(vector.tensor, require(name));
    // Rows are no whole groups of a format, so only the numbers of all of them together are.
    const std::vector<int64_t>& shape = vector.tensor->shape;
    vector.scheme = find_scheme(vector.tensor->type);
    const bool fits = shape == std::vector<int64_t>{rows, cols} || shape == std::vector<int64_t>{rows, 1, cols};
    if (!fits || vector.scheme == nullptr || vector.scheme->block_values != 1) {
      return Error{fmt::format("{}: tensor \"{}\" is {} of {}, expected floats [{}, {}]", checkpoint_.path(),
                               vector.tensor->name, fmt::format("[{}]", fmt::join(shape, ", ")), vector.tensor->type,
                               rows, cols)};
    }
    vector.offset = 0;
    vector.columns = cols;
    asked_.insert(vector.tensor);
  }
  vectors_.push_back(vector);
  return Tensor::dense(to, Dtype::f32, cols, rows);
}

void WeightStore::leave(std::string_view prefix) {
  for (const auto& [name, known] : known_) {
    if (name.starts_with(prefix)) asked_.insert(known.tensor);
  }
}

Tensor WeightStore::constants(std::span<const float> values) {
  std::byte* to = take(static_cast<int64_t>(values.size_bytes()));
  constants_.push_back({{values.begin(), values.end()}, to});
  return Tensor::dense(to, Dtype::f32, static_cast<int32_t>(values.size()));
}

std::byte* WeightStore::take(int64_t bytes) {
  std::byte* begin = base_ + used_;
  used_ += (bytes + alignment - 1) / alignment * alignment;
  return begin;
}

Status WeightStore::check_all_used(int layers, std::string_view architecture) const {
  for (const Packing& packing : packings_) {
    if (!packing.has_row_scales() || packing.row_scales != nullptr) continue;
    return Error{fmt::format("{}: tensor \"{}\" has scales beside it, which only linear layers may have",
                             checkpoint_.path(), packing.tensor->name)};
  }
  for (const auto& [name, known] : known_) {
    if (asked_.contains(known.tensor) || is_spare(name)) continue;
    const int layer = layer_of(name);
    if (layer < 0 || layer >= layers) continue;
    return Error{fmt::format("{}: tensor \"{}\" has no place in a {} as its configuration describes it",
                             checkpoint_.path(), known.tensor->name, architecture)};
  }
  return {};
}

std::vector<WeightStore::Task> WeightStore::tasks() const {
  std::vector<Task> all;
  for (const Packing& packing : packings_) {
    const int64_t row_bytes = packing.scheme != nullptr ? stored_bytes(*packing.scheme, packing.to.cols)
                                                        : int64_t{packing.to.cols} * dtype_bytes(Dtype::f16);
    const int64_t panel = panel_rows(device_, packing.to.format);
    const int64_t panels = std::max<int64_t>(1, task_bytes / std::max<int64_t>(1, row_bytes * panel));
    const auto step = static_cast<int32_t>(std::min<int64_t>(panels * panel, int64_t{1} << 20));
    for (int32_t row = 0; row < packing.to.rows; row += step) {
      const int32_t rows = std::min(step, packing.to.rows - row);
      all.push_back({&packing, row, rows, rows * row_bytes});
    }
  }
  // In the order of the file, which is the order in which a disk gives it.
  std::sort(all.begin(), all.end(), [](const Task& a, const Task& b) {
    const std::byte* first = a.packing->tensor != nullptr ? a.packing->tensor->bytes.data() : nullptr;
    const std::byte* second = b.packing->tensor != nullptr ? b.packing->tensor->bytes.data() : nullptr;
    return std::tie(first, a.packing->first_row, a.first_row) < std::tie(second, b.packing->first_row, b.first_row);
  });
  return all;
}

int64_t WeightStore::stored_row(int64_t row, int64_t rows, int rope_heads) {
  if (rope_heads == 0) return row;
  const int64_t head_dim = rows / rope_heads;
  const int64_t half = head_dim / 2;
  const int64_t i = row % head_dim;
  return row - i + (i < half ? 2 * i : 2 * (i - half) + 1);
}

void WeightStore::fill_vectors(Device& device) const {
  const auto send = [&](std::byte* to, const std::vector<float>& values) {
    device.upload(to, reinterpret_cast<const std::byte*>(values.data()),
                  static_cast<int64_t>(values.size() * sizeof(float)));
  };
  for (const Constant& constant : constants_) send(constant.to, constant.values);
  for (const Vector& vector : vectors_) {
    if (vector.tensor == nullptr) {
      send(vector.to, std::vector<float>(static_cast<size_t>(vector.size), vector.offset));
      continue;
    }
    const std::byte* const first = vector.tensor->bytes.data() + stored_bytes(*vector.scheme, vector.first);
    const int64_t count = (vector.stored - 1) * int64_t{vector.step} + 1;
    const std::vector<float> stored = decode_row(*vector.scheme, first, count);
    std::vector<float> values(static_cast<size_t>(vector.size), stored[0]);
    for (int64_t i = 0; i < vector.stored && vector.stored > 1; ++i) {
      const int64_t rows = vector.stored / vector.columns;
      const int64_t in_order = i % rows * vector.columns + i / rows;
      const int64_t from = stored_row(in_order, vector.size, vector.tensor->rope_heads) * vector.step;
      values[static_cast<size_t>(i)] = stored[static_cast<size_t>(from)] + vector.offset;
    }
    send(vector.to, values);
  }
}

void WeightStore::fill(Device& device, int threads, const std::function<void(double)>& progress) {
  fill_vectors(device);
  make_pools();
  const std::vector<Task> all = tasks();
  int64_t total_bytes = 1;
  for (const Task& task : all) total_bytes += task.stored_bytes;
  std::atomic<size_t> next = 0;
  std::vector<char> broken(all.size());
  std::atomic<int64_t> done_bytes = 0;
  const auto work = [&](bool reports) {
    Scratch scratch;
    for (size_t i = next++; i < all.size(); i = next++) {
      pack(device, all[i], scratch);
      broken[i] = first_broken_value(all[i], scratch) >= 0 ? 1 : 0;
      done_bytes += all[i].stored_bytes;
      if (reports && progress) progress(static_cast<double>(done_bytes) / static_cast<double>(total_bytes));
    }
  };
  std::vector<std::jthread> team;
  for (int i = 1; i < threads; ++i) team.emplace_back(work, false);
  work(true);
  team.clear();
  const auto first = static_cast<size_t>(std::ranges::find(broken, 1) - broken.begin());
  if (first < all.size()) broken_ = all[first];
  if (progress) progress(1.0);
}

void WeightStore::make_pools() {
  std::mt19937 random(17);
  std::normal_distribution<float> normal(0.0F, pool_spread);
  for (const Packing& packing : packings_) {
    const auto fits = [&](const RowPool& pool) { return pool.fits(packing); };
    if (packing.tensor != nullptr || std::any_of(pools_.begin(), pools_.end(), fits)) continue;
    RowPool pool{packing.to.format, packing.to.cols, packing.quantized, {}, {}};
    const float scale = packing.quantized ? pool_scale : 1.0F;
    visit_format(pool.format, [&]<typename Format>(Format) {
      const size_t groups = static_cast<size_t>(pool_rows * groups_of<Format>(pool.cols));
      pool.data.resize(groups * Format::data_bytes);
      pool.scales.resize(groups * Format::scale_bytes);
      float values[Format::group];
      for (size_t g = 0; g < groups; ++g) {
        for (float& value : values) value = normal(random) / scale;
        Format::encode(values, pool.data.data() + g * Format::data_bytes, pool.scales.data() + g * Format::scale_bytes);
      }
    });
    pools_.push_back(std::move(pool));
  }
}

const WeightStore::RowPool& WeightStore::pool_of(const Packing& packing) const {
  return *std::find_if(pools_.begin(), pools_.end(), [&](const RowPool& pool) { return pool.fits(packing); });
}

/// The rows of a task in Layout::rows.
void WeightStore::read_rows(const Task& task, Scratch& scratch) const {
  const Packing& packing = *task.packing;
  const FormatSizes sizes = format_info(packing.to.format);
  const int64_t cols = packing.to.cols;
  const int64_t data_bytes = plane_bytes(cols, sizes.group, sizes.data_bytes);
  const int64_t scale_bytes = plane_bytes(cols, sizes.group, sizes.scale_bytes);
  scratch.data.resize(std::max(scratch.data.size(), static_cast<size_t>(task.rows * data_bytes)));
  scratch.scales.resize(std::max(scratch.scales.size(), static_cast<size_t>(task.rows * scale_bytes)));
  scratch.row_scales.assign(static_cast<size_t>(task.rows), 1.0F);
  if (packing.transposed && packing.tensor != nullptr) return read_columns(task, scratch);
  for (int32_t i = 0; i < task.rows; ++i) {
    scratch.row_scales[static_cast<size_t>(i)] = read_row(
        packing, task.first_row + i, scratch.data.data() + i * data_bytes, scratch.scales.data() + i * scale_bytes);
  }
}

void WeightStore::read_columns(const Task& task, Scratch& scratch) const {
  const Packing& packing = *task.packing;
  const Scheme& scheme = *packing.scheme;
  const int64_t cols = packing.to.cols;
  const int64_t stored_cols = packing.tensor->shape.back();
  // Only what these rows need, where the file's values can be read one by one.
  const bool single = scheme.block_values == 1;
  const int64_t first = packing.first_column + task.first_row * packing.step;
  const int64_t begin = single ? first : 0;
  const int64_t end = single ? first + (task.rows - 1) * packing.step + 1 : stored_cols;
  std::vector<float> values(static_cast<size_t>(task.rows * cols));
  for (int64_t c = 0; c < cols; ++c) {
    const int64_t row = packing.first_row + c;
    const std::byte* const bytes = packing.tensor->bytes.data() + row * stored_row_bytes(scheme, stored_cols);
    const std::vector<float> stored = decode_row(scheme, bytes + stored_bytes(scheme, begin), end - begin);
    for (int32_t r = 0; r < task.rows; ++r) {
      const int64_t column = first + r * packing.step;
      const float scale = packing.scales ? packing.scales.at(row, column / StoredScales::block) : 1.0F;
      values[static_cast<size_t>(r * cols + c)] = stored[static_cast<size_t>(column - begin)] * scale;
    }
  }
  visit_format(packing.to.format, [&]<typename Format>(Format) {
    std::byte* data = scratch.data.data();
    std::byte* scales = scratch.scales.data();
    for (size_t at = 0; at < values.size(); at += Format::group) {
      Format::encode(values.data() + at, data, scales);
      data += Format::data_bytes;
      scales += Format::scale_bytes;
    }
  });
}

float WeightStore::read_row(const Packing& packing, int32_t row, std::byte* data, std::byte* scales) const {
  const int64_t cols = packing.to.cols;
  if (packing.tensor == nullptr) {
    const RowPool& pool = pool_of(packing);
    const int64_t from = (7 * (&packing - packings_.data()) + row) % pool_rows;
    const size_t data_bytes = pool.data.size() / pool_rows;
    const size_t scale_bytes = pool.scales.size() / pool_rows;
    std::memcpy(data, pool.data.data() + static_cast<size_t>(from) * data_bytes, data_bytes);
    if (scale_bytes > 0) std::memcpy(scales, pool.scales.data() + static_cast<size_t>(from) * scale_bytes, scale_bytes);
    return packing.quantized ? pool_scale : 1.0F;
  }
  const int64_t stored = packing.stored(stored_row(row, packing.to.rows, packing.tensor->rope_heads));
  const std::byte* const bytes = packing.tensor->bytes.data() + stored * stored_row_bytes(*packing.scheme, cols);
  if (packing.quantized) return quantize_row(decode_row(*packing.scheme, bytes, cols), data);
  packing.scheme->convert_row(bytes, cols, data, scales);
  if (!packing.tensor->scales.empty()) {
    const FormatSizes sizes = format_info(packing.to.format);
    const int64_t row_bytes = plane_bytes(cols, sizes.group, sizes.scale_bytes);
    std::memcpy(scales, packing.tensor->scales.data() + stored * row_bytes, static_cast<size_t>(row_bytes));
  }
  if (!packing.scales) return 1.0F;
  if (!packing.scales.in_blocks()) return packing.scales.at(stored, 0);
  for (int64_t block = 0; block * StoredScales::block < cols; ++block) {
    store_u32(scales + 4 * block, std::bit_cast<uint32_t>(packing.scales.at(stored, block)));
  }
  return 1.0F;
}

void WeightStore::pack(Device& device, const Task& task, Scratch& scratch) const {
  read_rows(task, scratch);
  const Packing& packing = *task.packing;
  Weight rows = packing.to;
  rows.layout = Layout::rows;
  rows.rows = task.rows;
  rows.data = scratch.data.data();
  rows.scales = scratch.scales.data();
  if (device.host_addressable()) {
    pack_panels(device_, packing.to.data, rows, task.first_row, packing.to.rows);
  } else {
    scratch.packed.resize(static_cast<size_t>(packed_bytes(device_, rows.format, rows.rows, rows.cols)));
    pack_panels(device_, scratch.packed.data(), rows, 0, rows.rows);
    const int64_t before = packed_bytes(device_, rows.format, task.first_row, rows.cols);
    device.upload(packing.to.data + before, scratch.packed.data(), static_cast<int64_t>(scratch.packed.size()));
  }
  if (packing.row_scales != nullptr) {
    device.upload(packing.row_scales + int64_t{task.first_row} * dtype_bytes(Dtype::f32),
                  reinterpret_cast<const std::byte*>(scratch.row_scales.data()),
                  int64_t{task.rows} * dtype_bytes(Dtype::f32));
  }
  drop(task);
}

void WeightStore::drop(const Task& task) const {
  const Packing& packing = *task.packing;
  if (packing.tensor == nullptr || packing.transposed) return;
  const int64_t row_bytes = stored_row_bytes(*packing.scheme, packing.to.cols);
  const int64_t first = packing.stored(task.first_row);
  const int64_t rows = packing.stored(task.first_row + task.rows - 1) + 1 - first;
  checkpoint_.drop(
      packing.tensor->bytes.subspan(static_cast<size_t>(first * row_bytes), static_cast<size_t>(rows * row_bytes)));
}

Status WeightStore::check_scales() const {
  if (!broken_) return {};
  const Packing& packing = *broken_->packing;
  Scratch scratch;
  read_rows(*broken_, scratch);
  const int64_t value = first_broken_value(*broken_, scratch);
  const int64_t row = broken_->first_row + value / packing.to.cols;
  return Error{fmt::format("{}: tensor \"{}\" has a scale that is not finite, that of the values from [{}, {}] on",
                           checkpoint_.path(), packing.tensor->name,
                           packing.stored(stored_row(row, packing.to.rows, packing.tensor->rope_heads)),
                           value % packing.to.cols)};
}

}  // namespace quern
