// A saved run of `quern perplexity`: the text's tokens and the distribution after each scored one, to compare other
// runs with. Thread: main, and what sees logits on the executor's thread.
//
// The file: a head of 64 bytes, the tokens (i32), then for each scored token the codes (u16) of the whole vocabulary: a
// logit is best - code * step. Only the best one has code 0. All numbers are little-endian.
#pragma once

#include <array>
#include <cstdint>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/measure/windows.h"
#include "base/file.h"
#include "base/result.h"

namespace quern {

/// What both runs must have in common, beside the tokens.
struct BaseHead {
  int32_t vocab = 0;
  WindowSizes sizes;
  int32_t bos = -1;  // begins every window; -1: nothing does
  int64_t scored = 0;
};

class BaseWriter {
 public:
  /// The file counts as a run only after finish().
  static Result<std::unique_ptr<BaseWriter>> create(const std::string& path, const BaseHead& head,
                                                    std::span<const int32_t> tokens);

  /// The distribution of the `ordinal`th scored token, from its logits. Failures show in finish().
  void write(int64_t ordinal, std::span<const float> logits);
  Status finish();
  int64_t bytes() const;

 private:
  BaseWriter(std::string path, const BaseHead& head, std::span<const int32_t> tokens);

  const std::string path_;
  const BaseHead head_;
  const std::vector<int32_t> tokens_;
  std::ofstream file_;
  std::vector<uint16_t> codes_;
};

/// How a token's distribution differs from the saved one.
struct Difference {
  double kl = 0.0;            // of the saved one from this one, in nats
  double base_logprob = 0.0;  // of the token that follows
  bool same_best = false;
};

class BaseRun {
 public:
  /// Refuses what is no finished run, in one sentence.
  static Result<BaseRun> open(const std::string& path);

  const BaseHead& head() const { return head_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  /// `logprob`: of `follower`, by the logits.
  Difference compare(int64_t ordinal, std::span<const float> logits, int32_t follower, double logprob) const;

 private:
  MappedFile file_;
  BaseHead head_;
  std::vector<int32_t> tokens_;
  const std::byte* codes_ = nullptr;
  std::vector<float> weights_;  // by code
};

}  // namespace quern
