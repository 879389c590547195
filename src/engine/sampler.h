// Sampler: the sample half of a step: from logits to the next token of every slice. Thread: executor.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "engine/plan.h"
#include "engine/rows.h"
#include "engine/wide_logprobs.h"
#include "ops/sample.h"
#include "tensor/device.h"
#include "tensor/tensor.h"

namespace quern {

/// Masks of a step by row; a row whose mask failed has nothing.
using StepMaskWords = std::map<int32_t, std::optional<TokenMask::Words>>;

/// One step at a time: begin() queues the choice of every slice's next token, finish() waits for it. Between the two
/// the step's logits and the rows stay as they are.
class Sampler {
 public:
  /// `host` is memory as of Device::allocate_host, of host_bytes(). `next` holds the last token of every row, on the
  /// device.
  Sampler(Device& device, std::byte* host, int32_t rows, int32_t vocab, Tensor next);
  static int64_t host_bytes(const Device& device, int32_t rows, int32_t vocab);

  /// A row begins with these tokens; what lies behind the request's prompt was generated before.
  void start(RowId row, const Request& request, std::span<const int32_t> tokens);

  /// The rows know all tokens of earlier steps.   logits: [outputs, vocab], or none when no slice samples
  void begin(Exec& exec, Tensor logits, const StepPlan& plan, std::span<const Row> rows, const StepStage& stage,
             StepMaskWords masks);
  /// Whether finish() would not wait.
  bool done() { return device_.done(mark_); }
  /// One result per slice. A decoding slice with drafts keeps those that sampling itself would have chosen, and the
  /// token after them.
  std::vector<SliceResult> finish(Exec& exec, const StepPlan& plan, std::span<const Row> rows);

 private:
  /// Where a slice's outputs are, and the position of what its first one gives.
  struct Place {
    int32_t output = 0;
    int32_t position = 0;
  };

  void start_round(Exec& exec, const StepPlan& plan, std::span<const Row> rows);
  void end_round(const StepPlan& plan, std::span<const Row> rows);
  SampleRow sample_row(const Slice& slice, const Row& row, const SliceResult& so_far, int32_t position);
  void sample_run(Exec& exec, size_t begin, size_t end);
  void share(SampleRow* row);
  template <typename T>
  std::span<const T> shared(std::span<const T> values);
  std::span<const int32_t> banned_tokens(const Slice& slice, const Row& row, std::span<const int32_t> just_made);
  static std::vector<int32_t> last_output(const Row& row, std::span<const int32_t> just_made);
  std::span<const uint32_t> allowed_tokens(const Slice& slice, const SamplingParams& sampling);
  void keep(const Slice& slice, const Row& row, size_t place, SliceResult* result);
  void count(const Row& row, std::span<const int32_t> just_made, TokenCounts& counts) const;

  Device& device_;
  int32_t vocab_;
  Tensor next_;
  // Memory that the device reads and writes while a round runs, and what is used of the payload.
  SampleRow* wanted_;
  Sampled* sampled_;
  std::byte* payload_;
  int64_t payload_bytes_;
  int64_t payload_used_ = 0;

  Tensor logits_;
  StepMaskWords masks_;
  std::vector<SliceResult> results_;
  std::vector<Place> places_;
  std::vector<size_t> active_;  // slices of the round that runs
  HostLogits wide_;             // of those whose logprobs the host makes, in their order
  size_t wide_taken_ = 0;
  int32_t round_ = 0;
  QueueMark mark_ = 0;
  std::vector<TokenCounts> counts_;           // by row; only kept for rows with penalties
  std::vector<std::vector<int32_t>> banned_;  // by row, of the round that runs
};

}  // namespace quern
