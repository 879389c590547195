// Rows: the permanent places of sequences: their tokens, how far they are, and their page tables. Thread: executor.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/plan.h"
#include "model/step.h"
#include "tensor/device.h"

namespace quern {

struct Row {
  std::shared_ptr<const Request> request;
  std::vector<int32_t> tokens;  // known and generated; the last one is what a decoding slice sends next
  int32_t length = 0;           // of those, how many have their keys and values in the pages
};

/// Where the inputs of a step lie, and what they are in host memory before they are copied there.
class StepStage {
 public:
  StepStage(std::byte* memory, int32_t max_tokens, int32_t max_segments);
  static int64_t bytes(int32_t max_tokens, int32_t max_segments);

  /// Takes the tokens of every slice. Decoding slices send the row's last token and their drafts.
  void fill(const StepPlan& plan, const std::vector<Row>& rows);
  void copy_to(Device& device) const;

  StepShape shape() const { return shape_; }
  StepInputs inputs() const;
  /// First output of each slice; one more at the end.
  const std::vector<int32_t>& first_output() const { return first_output_; }
  int32_t length_after(size_t slice) const { return lengths_[slice]; }

 private:
  std::byte* memory_;
  int32_t max_tokens_;
  int32_t max_segments_;
  StepShape shape_;
  std::vector<int32_t> tokens_, positions_, starts_, row_ids_, outputs_, first_output_, lengths_;
};

}  // namespace quern
