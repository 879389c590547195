// What tests need to run a decoder without an engine: sequences with page tables and KV memory of their own.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "model/decoder.h"
#include "model/spec.h"
#include "model/step.h"
#include "ops/kernel.h"
#include "tensor/device.h"

namespace quern::testing {

/// Where a model's test runs: the CPU at one of its instruction-set levels, or the GPU.
struct Place {
  DeviceKind device = DeviceKind::cpu;
  Isa isa = Isa::portable;

  std::string name() const { return device == DeviceKind::cpu ? isa_name(isa) : device_name(device); }
  /// Its device, or null on a machine that has no such place. `threads` are the CPU's.
  std::unique_ptr<Device> enter(int threads = 1) const {
    if (device == DeviceKind::cpu && !limit_isa(isa)) return nullptr;
    auto made = make_device(device, {.threads = threads});
    return made.ok() ? std::move(*made) : nullptr;
  }
};

inline std::vector<Place> all_places() {
  std::vector<Place> places;
  for (int isa = 0; isa < isa_levels; ++isa) places.push_back({DeviceKind::cpu, static_cast<Isa>(isa)});
  places.push_back({DeviceKind::cuda, Isa::portable});
  return places;
}

/// New tokens of one sequence in a step, and at which of them logits are wanted.
struct StepPart {
  int row = 0;
  std::vector<int32_t> tokens;
  std::vector<int> outputs;
};

/// Sequences by row. All that a step must not read is not a number: unused pages, the ends of pages, the pages of
/// window groups that no later token may see, and the recurrent states of rows that have not begun.
class Sequences {
 public:
  Sequences(Device& device, const DecoderSpec& spec, const Decoder& decoder, int rows, int max_positions,
            Dtype kv_dtype = Dtype::f16, Dtype activations = Dtype::f32)
      : device_(device), decoder_(decoder), activations_(activations), lengths_(static_cast<size_t>(rows)) {
    kv_.layout = kv_layout(spec, dtype_bytes(kv_dtype));
    kv_.dtype = kv_dtype;
    pages_per_row_ = (max_positions + kv_.layout.page_tokens - 1) / kv_.layout.page_tokens;
    const size_t groups = kv_.layout.groups.size();
    const size_t per_group = static_cast<size_t>(rows * pages_per_row_);
    std::vector<int32_t> ids(groups * per_group);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i + 1);  // page 0 is nobody's
    std::shuffle(ids.begin(), ids.end(), std::mt19937(11));
    pool_.assign((ids.size() + 1) * static_cast<size_t>(kv_.layout.page_bytes), std::byte{0xFF});
    kv_.pool = pool_.data();
    kv_.pages = static_cast<int64_t>(ids.size()) + 1;
    states_.assign(static_cast<size_t>(rows * kv_.layout.state_pages() * kv_.layout.page_bytes), std::byte{0xFF});
    kv_.states = states_.data();
    for (size_t g = 0; g < groups; ++g) {
      const auto first = ids.begin() + static_cast<std::ptrdiff_t>(g * per_group);
      tables_.emplace_back(first, first + static_cast<std::ptrdiff_t>(per_group));
    }
    for (std::vector<int32_t>& table : tables_) {
      kv_.tables.push_back(Tensor::dense(reinterpret_cast<std::byte*>(table.data()), Dtype::i32, rows, pages_per_row_));
    }
  }
  Sequences(const Sequences&) = delete;
  Sequences& operator=(const Sequences&) = delete;

  int length(int row) const { return lengths_[static_cast<size_t>(row)]; }
  /// Bytes of the arena that the last step took.
  int64_t arena_bytes() const { return arena_bytes_; }

  /// Runs one step; logits of all outputs, slice by slice.
  std::vector<std::vector<float>> step(std::span<const StepPart> slices) {
    std::vector<int32_t> tokens;
    std::vector<int32_t> positions;
    std::vector<int32_t> starts{0};
    std::vector<int32_t> rows;
    std::vector<int32_t> outputs;
    for (const StepPart& slice : slices) {
      hide_what_is_behind_the_window(slice.row);
      const auto first = static_cast<int32_t>(tokens.size());
      for (const int output : slice.outputs) outputs.push_back(first + output);
      for (const int32_t token : slice.tokens) {
        tokens.push_back(token);
        positions.push_back(lengths_[static_cast<size_t>(slice.row)]++);
      }
      starts.push_back(static_cast<int32_t>(tokens.size()));
      rows.push_back(slice.row);
    }
    const StepShape shape{static_cast<int>(tokens.size()), static_cast<int>(rows.size()),
                          static_cast<int>(outputs.size())};
    const auto view = [](std::vector<int32_t>& values) {
      return Tensor::dense(reinterpret_cast<std::byte*>(values.data()), Dtype::i32,
                           static_cast<int32_t>(values.size()));
    };
    return run(shape, {view(tokens), {view(starts), view(rows), view(positions)}, view(outputs)});
  }
  std::vector<std::vector<float>> step(const StepPart& slice) { return step(std::span(&slice, 1)); }

 private:
  std::vector<std::vector<float>> run(const StepShape& shape, const StepInputs& inputs) {
    const int64_t bytes =
        decoder_.activation_bytes(device_.queue(), activations_, shape, pages_per_row_ * kv_.layout.page_tokens);
    memory_.assign(static_cast<size_t>(bytes) + 64, std::byte{0xFF});
    void* begin = memory_.data();
    size_t space = memory_.size();
    Arena arena(static_cast<std::byte*>(std::align(64, static_cast<size_t>(bytes), begin, space)), bytes);
    Exec exec{device_.queue(), arena};
    exec.activations = activations_;
    Step step{exec, shape, inputs, kv_};
    const Tensor hidden = decoder_.forward(step);
    std::vector<std::vector<float>> out;
    if (shape.outputs > 0) {
      const Tensor logits = decoder_.logits(step, hidden);
      device_.wait();
      for (int i = 0; i < shape.outputs; ++i)
        out.emplace_back(logits.row<float>(i), logits.row<float>(i) + logits.dims[1]);
    }
    arena_bytes_ = arena.peak();
    return out;
  }

  void hide_what_is_behind_the_window(int row) {
    for (size_t g = 0; g < tables_.size(); ++g) {
      const int window = kv_.layout.groups[g].window;
      if (window == 0) continue;
      const int first_seen = std::max(0, length(row) - window + 1);
      int32_t* table = tables_[g].data() + row * pages_per_row_;
      for (int page = 0; page < first_seen / kv_.layout.page_tokens; ++page) table[page] = 0;
    }
  }

  Device& device_;
  const Decoder& decoder_;
  const Dtype activations_;
  KvCache kv_;
  int pages_per_row_ = 0;
  std::vector<int> lengths_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<std::byte> pool_;
  std::vector<std::byte> states_;
  std::vector<std::byte> memory_;
  int64_t arena_bytes_ = 0;
};

inline int32_t arg_max(const std::vector<float>& values) {
  return static_cast<int32_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

}  // namespace quern::testing
