// WeightStore: the weights of a checkpoint as a model asks for them. It gives out addresses at once and notes how each
// is to be filled; fill() then does all the work in parallel. Thread: the loading one.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/fp8_weights.h"
#include "checkpoint/source.h"
#include "formats/finite_scales.h"
#include "model/spec.h"
#include "model/weights.h"
#include "tensor/device.h"
#include "tensor/queue.h"

namespace quern {

/// What becomes of the float weights of linear layers; the router and the output stay as they are.
enum class Quantize : uint8_t {
  no,
  fp8,  // 8-bit floats with a scale for each row
};

class WeightStore final : public Weights {
 public:
  /// Addresses start at `base`, which has room for everything or, for a plan, is no memory at all.
  WeightStore(const Checkpoint& checkpoint, DeviceKind device, std::byte* base, Quantize quantize = Quantize::no,
              std::span<const NameRule> names = {});

  bool has(std::string_view name) const override { return find(name).tensor != nullptr; }
  Result<Weight> weight(const std::string& name, int rows, int cols) override;
  Result<Weight> slice(const WeightSlice& slice) override;
  Result<Tensor> vectors(std::span<const NamedRows> parts, float offset) override;
  Result<Tensor> vector_slices(std::span<const VectorSlice> parts) override;
  Tensor scales(std::span<const Weight> parts) override;
  Result<Tensor> spread(const std::string& name, int size) override;
  Result<Tensor> transposed(const std::string& name, int rows, int cols) override;
  void leave(std::string_view prefix) override;
  Tensor constants(std::span<const float> values) override;

  /// Bytes of everything asked for so far.
  int64_t bytes() const { return used_; }
  /// An error that names a tensor of the layers that the model did not ask for: it would be computed without it; or one
  /// whose scales it did not ask for.
  Status check_all_used(int layers, std::string_view architecture) const;
  /// Converts and packs everything that was asked for into the memory of `device`.
  void fill(Device& device, int threads, const std::function<void(double)>& progress);
  /// After fill(): an error that names a tensor of blocks with a scale that is not finite.
  Status check_scales() const;

 private:
  /// A tensor of the checkpoint under the name that models ask for.
  struct Known {
    const StoredTensor* tensor = nullptr;
    bool transposed = false;
  };
  /// Rows of a stored tensor that become one packed weight.
  struct Packing {
    const StoredTensor* tensor;  // null: invented
    const Scheme* scheme;
    int64_t first_row;
    Weight to;
    StoredScales scales;
    int64_t step = 1;                 // between runs of rows: stored rows, or columns of a transposed one
    int64_t run = 1;                  // rows that stand together
    int64_t first_column = 0;         // of a transposed one
    bool transposed = false;          // row i is stored column first_column + i * step of rows from first_row on
    bool quantized = false;           // here, from floats
    std::byte* row_scales = nullptr;  // [rows] f32, where they go

    int64_t stored(int64_t row) const { return first_row + row / run * step + row % run; }
    bool has_row_scales() const { return quantized || (scales && !scales.in_blocks() && !transposed); }
  };
  struct Vector {
    const StoredTensor* tensor;  // null: invented, all of them `offset`
    const Scheme* scheme;
    float offset;
    int32_t size;
    int32_t stored;  // as many are in the file: all, or one for all
    std::byte* to;
    int32_t first = 0;  // of the stored numbers, of which every `step`th is meant
    int32_t step = 1;
    int32_t columns = 1;  // of a stored matrix that is to be transposed
  };
  struct Constant {
    std::vector<float> values;
    std::byte* to;
  };
  /// Whole panels of one packing: what a thread does at a time.
  struct Task {
    const Packing* packing;
    int32_t first_row;
    int32_t rows;
    int64_t stored_bytes;
  };
  struct Scratch {
    std::vector<std::byte> data;
    std::vector<std::byte> scales;
    std::vector<std::byte> packed;
    std::vector<float> row_scales;
  };

  /// Where the row that is to become `row` stands in a file that keeps rotary pairs side by side
  /// (StoredTensor::rope_heads).
  static int64_t stored_row(int64_t row, int64_t rows, int rope_heads);
  Known find(std::string_view name) const;
  Result<const StoredTensor*> require(const std::string& name) const;
  Result<Weight> add_packing(const WeightSlice& slice);
  /// Whether a matrix in this format becomes 8-bit floats.
  bool to_quantize(std::string_view name, FormatId format, int64_t cols) const;
  std::byte* take(int64_t bytes);
  std::vector<Task> tasks() const;
  /// Rows of random values in a format, of which invented weights are made.
  struct RowPool {
    FormatId format;
    int32_t cols;
    bool quantized;
    std::vector<std::byte> data, scales;

    bool fits(const Packing& packing) const {
      return format == packing.to.format && cols == packing.to.cols && quantized == packing.quantized;
    }
  };

  Weight invent(std::string_view name, FormatId format, int64_t first_row, int rows, int cols);
  /// Takes memory for a packing whose `to` says the format and size.
  Weight add_packed(Packing packing);
  const RowPool& pool_of(const Packing& packing) const;
  void make_pools();
  void fill_vectors(Device& device) const;
  void read_rows(const Task& task, Scratch& scratch) const;
  /// The same of a transposed packing.
  void read_columns(const Task& task, Scratch& scratch) const;
  /// The planes of row `row` of a packing; returns its scale.
  float read_row(const Packing& packing, int32_t row, std::byte* data, std::byte* scales) const;
  void pack(Device& device, const Task& task, Scratch& scratch) const;
  /// The first group of a task's rows, as they were read, that has a scale which is not finite; -1: none.
  static int64_t first_broken_value(const Task& task, const Scratch& scratch) {
    const Weight& to = task.packing->to;
    return quern::first_broken_value(to.format, scratch.scales.data(), int64_t{task.rows} * to.cols);
  }
  /// The file's pages of a task are not read again.
  void drop(const Task& task) const;

  const Checkpoint& checkpoint_;
  DeviceKind device_;
  std::byte* base_;
  Quantize quantize_;
  int64_t used_ = 0;
  std::map<std::string, Known, std::less<>> known_;
  std::set<const StoredTensor*> asked_;
  std::vector<Packing> packings_;
  std::vector<Vector> vectors_;
  std::vector<Constant> constants_;
  std::vector<RowPool> pools_;
  std::optional<Task> broken_;  // the first with a scale that is not finite
};

}  // namespace quern
