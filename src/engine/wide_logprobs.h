// Logprobs that kernels do not tell: more than max_top_logprobs of them, those of named tokens, or logits in their
// place. The host makes them from whole rows of logits, which costs those who ask for it. Thread: executor.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/request.h"
#include "tensor/device.h"
#include "tensor/tensor.h"

namespace quern {

/// What is told of a token.
struct LogprobsWanted {
  int32_t best = -1;                     // so many of the best tokens too; -1: nothing is wanted
  std::span<const int32_t> tokens = {};  // and these
  bool logits = false;                   // as they are, not their log-softmax
  bool processed = false;                // of the logits that the draw was from

  /// Whether kernels leave it to the host.
  bool wide() const;
};
LogprobsWanted wanted_of_answer(const SamplingParams& sampling);
LogprobsWanted wanted_of_prompt(const SamplingParams& sampling);

/// Of `token`, from the logits of all tokens: finite ones, and minus infinity where a token could not be drawn.
TokenLogprobs wide_logprobs(std::span<const float> logits, int32_t token, const LogprobsWanted& wanted);

/// Rows of logits where the host can read them.
class HostLogits {
 public:
  explicit HostLogits(Device& device) : device_(device) {}

  void clear() {
    rows_.clear();
    used_ = 0;
  }
  /// Readable when the device's queue has come this far, and until the logits are written anew.   logits: [1, vocab]
  /// f32
  void add(Tensor logits);
  size_t size() const { return rows_.size(); }
  std::span<const float> operator[](size_t row) const { return rows_[row]; }

 private:
  Device& device_;
  std::vector<std::span<const float>> rows_;
  std::vector<std::vector<float>> copies_;  // of a device whose memory the host cannot read
  size_t used_ = 0;
};

}  // namespace quern
