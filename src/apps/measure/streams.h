// Streams of random tokens against an engine of this process, with the time of every token. Thread: main.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "apps/instance.h"
#include "apps/load/report.h"
#include "base/result.h"

namespace quern {

/// What a set of streams that were submitted together took.
struct StreamTimes {
  double seconds = 0.0;              // until the last one ended
  double first_token_seconds = 0.0;  // of the slowest
  int64_t output_tokens = 0;
  double step_seconds = 0.0;  // of a decoding step while all streams decoded; 0 if that never was
};

struct GapTimes {
  double p50_seconds = 0.0;
  double p99_seconds = 0.0;
};

class Streams {
 public:
  explicit Streams(Instance& instance) : instance_(instance) {}

  /// `count` prompts of `prompt` random tokens each, `output` tokens from each, greedy.
  Result<StreamTimes> run(int count, int prompt, int output);
  /// `count` such prompts, `concurrency` of them at once: when one ends the next begins.
  Result<LoadReport> load(int concurrency, int count, int prompt, int output);
  /// Gaps between the tokens of `count` decoding streams while a prompt of `long_prompt` tokens comes every second.
  Result<GapTimes> mixed(int count, int long_prompt, int seconds);
  /// The seconds to the first token of a prompt of `prompt` tokens, all but the last of them cached.
  Result<double> hit(int prompt);

 private:
  std::vector<int32_t> random_tokens(int count);
  Request request_of(int prompt, int output);

  Instance& instance_;
  std::mt19937 random_{1};
};

}  // namespace quern
