// Scorer: the logprobs of prompt tokens, a bounded block of logits at a time. Thread: executor.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/plan.h"
#include "engine/rows.h"
#include "engine/wide_logprobs.h"
#include "model/decoder.h"
#include "ops/sample.h"
#include "tensor/device.h"

namespace quern {

/// Logits of neighbouring tokens of one prompt, and which tokens follow them.
struct ScoredLogits {
  RequestId request{};
  int32_t position = 0;  // of the first token
  int32_t vocab = 0;
  const float* logits = nullptr;  // [followers, vocab], in host memory
  std::span<const int32_t> followers;
  std::span<const Sampled> scores;  // of the followers
};
using SeeLogits = std::function<void(const ScoredLogits&)>;

/// One step at a time: begin() queues the scores of all slices that want some, finish() takes them over when the queue
/// has come this far.
class Scorer {
 public:
  /// `host` is memory as of Device::allocate_host, of host_bytes(). `see`, if given, is shown all logits of scored
  /// tokens, which then are waited for.
  Scorer(Device& device, std::byte* host, int32_t max_tokens, int32_t block_tokens, SeeLogits see);
  static int64_t host_bytes(int32_t max_tokens);

  static bool scores(const StepPlan& plan);
  /// hidden: what Decoder::run() made of the step's tokens
  void begin(const Decoder& decoder, Step& step, Tensor hidden, const StepPlan& plan, std::span<const Row> rows);
  /// Adds to the slices' results.
  void finish(const StepPlan& plan, std::span<SliceResult> results) const;

 private:
  void score(const Decoder& decoder, Step& step, Tensor hidden, const Row& row, int32_t position);
  void show(Tensor logits, const Row& row, int32_t position);
  void add_wide(Tensor logits, const LogprobsWanted& wanted);

  Device& device_;
  const int32_t block_tokens_;
  const SeeLogits see_;
  SampleRow* wanted_;
  Sampled* sampled_;
  int32_t used_ = 0;
  std::vector<float> seen_;
  HostLogits logits_;
  std::vector<TokenLogprobs> wide_;  // what the host has made in place of these; of rank 0 where it has not
};

TokenLogprobs logprobs_of(const Sampled& sampled);
void fail_row(SliceResult& result, SampleStatus status);

}  // namespace quern
