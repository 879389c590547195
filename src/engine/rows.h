// Rows: the permanent places of sequences: their tokens, how far they are, and their page tables. Thread: executor.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/plan.h"
#include "model/step.h"
#include "tensor/device.h"

namespace quern {

struct Row {
  std::shared_ptr<const Request> request;
  std::vector<int32_t> tokens;  // known to the host: those of steps in flight are missing
  int32_t length = 0;           // tokens whose keys and values are in the pages when all queued steps are done
};

/// The inputs of a step: made in host memory, then copied in one piece to device memory. The place of everything
/// depends on the step's shape alone. Steps take turns in two host blocks: a block is written again when the step that
/// used it has been computed.
class StepStage {
 public:
  /// `host` is memory as of Device::allocate_host, of host_bytes(); `memory` is the device's, of bytes().
  StepStage(std::byte* memory, std::byte* host, int32_t max_tokens, int32_t max_segments);
  static int64_t bytes(int32_t max_tokens, int32_t max_segments);
  static int64_t host_bytes(int32_t max_tokens, int32_t max_segments) { return 2 * bytes(max_tokens, max_segments); }

  /// Takes the tokens of every slice. The first token of a decoding slice is named by its row: only the device knows it
  /// (ops/rows.h, take_next_tokens). With `padded` more tokens than the slices have, the rest is nobody's.
  void fill(const StepPlan& plan, std::span<const Row> rows, int32_t padded);
  void copy_to(Device& device);

  /// Of what was filled last, padding included.
  StepShape shape() const { return shape_; }
  StepInputs inputs() const { return inputs(memory_, shape_); }
  /// Where a step of this shape finds its inputs.
  static StepInputs inputs(std::byte* memory, const StepShape& shape);
  /// First output of each slice; one more at the end.
  const std::vector<int32_t>& first_output() const { return first_output_; }
  int32_t length_after(size_t slice) const { return lengths_[slice]; }

 private:
  std::byte* memory_;
  std::byte* host_;
  int32_t max_tokens_;
  int32_t max_segments_;
  int turn_ = 0;
  StepShape shape_;
  std::vector<int32_t> tokens_, positions_, starts_, row_ids_, outputs_, first_output_, lengths_;
};

/// Whole pages, of all layers.   from, to: [copies] i32
void copy_whole_pages(Exec& exec, const KvCache& cache, Tensor from, Tensor to);

/// Page table entries and page copies on their way to the device.
class TableStage {
 public:
  static constexpr int32_t capacity = 4096;
  static constexpr int64_t bytes = 2 * int64_t{capacity} * 4;
  /// Two lists a step, and two steps in flight.
  static constexpr int64_t host_bytes = 4 * bytes;

  TableStage(std::byte* memory, std::byte* host) : memory_(memory), host_(host) {}

  /// Runs use(firsts, seconds) over device copies of the pairs, a part at a time. The host waits between parts only.
  template <typename Use>
  void each_part(Device& device, std::span<const std::pair<int32_t, int32_t>> pairs, Use&& use) {
    for (size_t begin = 0; begin < pairs.size(); begin += capacity) {
      if (begin > 0) device.wait();
      const auto part = pairs.subspan(begin, std::min<size_t>(capacity, pairs.size() - begin));
      send(device, part);
      const auto count = static_cast<int32_t>(part.size());
      use(Tensor::dense(memory_, Dtype::i32, count), Tensor::dense(memory_ + 4 * int64_t{count}, Dtype::i32, count));
    }
  }

 private:
  void send(Device& device, std::span<const std::pair<int32_t, int32_t>> pairs);

  std::byte* memory_;
  std::byte* host_;
  int turn_ = 0;
};

}  // namespace quern
