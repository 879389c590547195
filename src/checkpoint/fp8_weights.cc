#include "checkpoint/fp8_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <limits>
#include <numeric>

#include "checkpoint/wording.h"
#include "formats/half.h"
#include "formats/words.h"

namespace quern {
namespace {

constexpr std::string_view scale_types[] = {"F32", "F16", "BF16", "F8_E8M0"};

constexpr int64_t one_for_all = std::numeric_limits<int64_t>::max();  // rows that share a scale

int64_t count_of(const StoredTensor& tensor) {
  return std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>());
}

/// One number of such a type.
float number(const StoredTensor& tensor, int64_t index) {
  const std::byte* const bytes = tensor.bytes.data();
  if (tensor.type == "F32") return std::bit_cast<float>(load_u32(bytes + 4 * index));
  if (tensor.type == "F8_E8M0") return std::ldexp(1.0F, static_cast<int>(bytes[index]) - 127);
  const auto half = static_cast<uint16_t>(load_u16(bytes + 2 * index));
  return tensor.type == "F16" ? f16_to_f32(half) : bf16_to_f32(half);
}

int64_t blocks_of(int64_t size) { return (size + StoredScales::block - 1) / StoredScales::block; }

/// The shape of scales of blocks without the places that ModelOpt leaves for what is in a block: [rows, 1, columns, 1].
std::vector<int64_t> of_blocks(const std::vector<int64_t>& shape) {
  return shape.size() == 4 && shape[1] == 1 && shape[3] == 1 ? std::vector{shape[0], shape[2]} : shape;
}

/// A block of DeepSeek's kind, or none.
bool known_block(const Json* size) {
  if (size == nullptr) return true;
  if (!size->is_array() || size->items().size() != 2) return false;
  return std::all_of(size->items().begin(), size->items().end(),
                     [](const Json& side) { return side.is_integer() && side.as_integer() == StoredScales::block; });
}

/// Why a compressed-tensors configuration is not one of 8-bit floats; empty if it is.
std::string unlike_fp8(const Json& quantization) {
  const std::string format = quantization.string("format").value_or("");
  if (format != "float-quantized" && format != "naive-quantized") return fmt::format("format {}", quoted(format));
  if (quantization.present("transform_config") != nullptr) return "a transform_config";
  const Json* sparsity = quantization.present("sparsity_config");
  if (sparsity != nullptr && sparsity->string("format").value_or("dense") != "dense") return "a sparsity_config";
  const Json* groups = quantization.present("config_groups");
  if (groups == nullptr || !groups->is_object()) return "no config_groups";
  for (const auto& [name, group] : groups->members()) {
    const Json* weights = group.present("weights");
    if (weights == nullptr) return fmt::format("no weights in {}", quoted(name));
    if (weights->integer("num_bits") != 8 || weights->string("type") != "float") {
      return fmt::format("other weights than 8-bit floats in {}", quoted(name));
    }
    const std::string strategy = weights->string("strategy").value_or("tensor");
    const bool known = strategy == "tensor" || strategy == "channel" || strategy == "block";
    if (!known || !known_block(weights->present("block_structure"))) {
      return fmt::format("strategy {} in {}", quoted(strategy), quoted(name));
    }
  }
  return "";
}

/// Why `quantization_config` cannot be read; empty if it can.
std::string unknown_part(const Json& quantization) {
  const std::string method = quantization.string("quant_method").value_or("unknown");
  if (method == "fp8") {
    const bool e4m3 = quantization.string("fmt").value_or("e4m3") == "e4m3";
    return e4m3 && known_block(quantization.present("weight_block_size")) ? "" : "fp8 in another form than e4m3";
  }
  if (method == "fbgemm_fp8" || method == "mxfp4") return "";
  if (method == "modelopt") {
    const std::string algorithm = quantization.string("quant_algo").value_or("");
    const bool known = algorithm == "FP8" || algorithm == "FP8_PER_CHANNEL_PER_TOKEN" || algorithm == "FP8_PB_WO";
    return known ? "" : fmt::format("modelopt {}", quoted(algorithm));
  }
  if (method == "compressed-tensors") {
    const std::string why = unlike_fp8(quantization);
    return why.empty() ? "" : fmt::format("compressed-tensors with {}", why);
  }
  return quoted(method);
}

}  // namespace

Status check_quantization(const Json& config, const std::string& path) {
  const Json* text = config.present("text_config");
  for (const Json* place : {&config, text}) {
    if (place == nullptr) continue;
    for (const char* key : {"quantization_config", "compression_config"}) {
      const Json* quantization = place->present(key);
      const std::string why = quantization == nullptr ? "" : unknown_part(*quantization);
      if (why.empty()) continue;
      return Error{fmt::format(
          "{}: the weights are quantized by {}, which is not supported; use the unquantized model or a GGUF version",
          path, why)};
    }
  }
  return {};
}

Result<StoredScales> StoredScales::find(const Checkpoint& checkpoint, const StoredTensor& matrix) {
  const std::string what = fmt::format("{}: tensor {}", checkpoint.path(), quoted(matrix.name));
  if (matrix.type == f8_type) return of_f8(checkpoint, matrix, what);
  if (matrix.type == "NVFP4") return of_nvfp4(checkpoint, matrix, what);
  return StoredScales();
}

Result<StoredScales> StoredScales::of_nvfp4(const Checkpoint& checkpoint, const StoredTensor& matrix,
                                            const std::string& what) {
  StoredScales found;
  constexpr std::string_view ending = ".weight";
  if (!matrix.name.ends_with(ending)) return found;
  found.tensor_ = checkpoint.find(matrix.name.substr(0, matrix.name.size() - ending.size()) + ".scale");
  if (!found) return found;
  const int64_t count = count_of(*found.tensor_);
  const bool of_each = matrix.shape.size() == 3 && count == matrix.shape[0];
  if (found.tensor_->type != "F32" || (count != 1 && !of_each)) {
    return Error{fmt::format("{} is {}, which a scale of {} of {} does not fit; expected F32, one{}", what,
                             shape_text(matrix.shape), shape_text(found.tensor_->shape), found.tensor_->type,
                             matrix.shape.size() == 3 ? " or one for each matrix" : "")};
  }
  found.rows_each_ = count == 1 ? one_for_all : matrix.shape[1];
  return found;
}

Result<StoredScales> StoredScales::of_f8(const Checkpoint& checkpoint, const StoredTensor& matrix,
                                         const std::string& what) {
  StoredScales found;
  if (matrix.shape.size() != 2)
    return Error{fmt::format("{} is {} of {}, not a matrix", what, shape_text(matrix.shape), f8_type)};
  for (const char* ending : {"_scale", "_scale_inv"}) {
    if (const StoredTensor* tensor = checkpoint.find(matrix.name + ending)) found.tensor_ = tensor;
  }
  if (!found) return Error{fmt::format("{} is of {} but has no \"weight_scale\" beside it", what, f8_type)};
  const StoredTensor& scales = *found.tensor_;
  if (std::find(std::begin(scale_types), std::end(scale_types), scales.type) == std::end(scale_types)) {
    return Error{fmt::format("{}: its scales have type {}, which is not supported", what, scales.type)};
  }
  const int64_t rows = matrix.shape[0];
  const int64_t count = count_of(scales);
  const std::vector<int64_t> shape = of_blocks(scales.shape);
  const bool in_blocks = shape == std::vector{blocks_of(rows), blocks_of(matrix.shape[1])};
  if (count == rows && !scales.shape.empty() && scales.shape[0] == rows) {
    found.rows_each_ = 1;
  } else if (in_blocks && (count > 1 || scales.name.ends_with("_inv"))) {
    found.rows_each_ = block;
    found.blocks_ = shape[1];
  } else if (count == 1) {
    found.rows_each_ = one_for_all;
  } else {
    return Error{
        fmt::format("{} is {}, which scales of {} do not fit; known are one number, one for each row, and one "
                    "for each block of 128 x 128",
                    what, shape_text(matrix.shape), shape_text(scales.shape))};
  }
  return found;
}

Status StoredScales::check_values(const Checkpoint& checkpoint) const {
  const int64_t count = count_of(*tensor_);
  for (int64_t i = 0; i < count; ++i) {
    const float value = number(*tensor_, i);
    if (std::isfinite(value) && value >= 0.0F) continue;
    const std::string place = in_blocks() ? fmt::format("{}, {}", i / blocks_, i % blocks_) : fmt::format("{}", i);
    return Error{fmt::format("{}: tensor {} has {} at [{}], expected finite scales of at least 0", checkpoint.path(),
                             quoted(tensor_->name), value, place)};
  }
  return {};
}

float StoredScales::at(int64_t row, int64_t block_column) const {
  const int64_t scale = row / rows_each_;
  return number(*tensor_, in_blocks() ? scale * blocks_ + block_column : scale);
}

}  // namespace quern
