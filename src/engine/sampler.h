// Sampler: the sample half of a step: from logits to the next token of every slice. Thread: executor.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "engine/plan.h"
#include "engine/rows.h"
#include "ops/sample.h"
#include "tensor/tensor.h"

namespace quern {

/// Masks of a step by row; a row whose mask failed has nothing.
using StepMaskWords = std::map<int32_t, std::optional<TokenMask::Words>>;

class Sampler {
 public:
  Sampler(int32_t rows, int32_t vocab)
      : vocab_(vocab), counts_(static_cast<size_t>(rows)), ending_(static_cast<size_t>(rows)) {}

  /// A row begins with these tokens; what lies behind the request's prompt was generated before.
  void start(RowId row, const Request& request, std::span<const int32_t> tokens);

  /// One result per slice. A decoding slice with drafts keeps those that sampling itself would have chosen, and the
  /// token after them.   logits: [outputs, vocab], or none when no slice samples
  std::vector<SliceResult> sample(Exec& exec, Tensor logits, const StepPlan& plan, const std::vector<Row>& rows,
                                  const StepStage& stage, const StepMaskWords& masks);

 private:
  std::vector<Sampled> sample_outputs(Exec& exec, Tensor logits, std::span<const int32_t> at,
                                      std::span<const SampleRow> wanted);
  SampleRow sample_row(const Slice& slice, const Row& row, const SliceResult& so_far, const StepMaskWords& masks,
                       int32_t position);
  std::span<const int32_t> ending_tokens(RowId row, const Request& request);
  void keep(const Slice& slice, const Request& request, const Sampled& sampled, SliceResult* result);

  int32_t vocab_;
  std::vector<TokenCounts> counts_;           // by row; only kept for rows with penalties
  std::vector<std::vector<int32_t>> ending_;  // by row: its end and stop tokens, while they are banned
};

}  // namespace quern
