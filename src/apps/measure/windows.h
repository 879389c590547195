// Windows: pieces of a text of which a model sees one at a time; some of their tokens are scored. Values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace quern {

struct WindowSizes {
  int32_t context = 512;
  int32_t stride = 0;  // 0: windows follow one another, and the second half of each is scored

  bool operator==(const WindowSizes&) const = default;
};

/// Tokens [begin, end) of a text. Those from `score_from` (counted in the window) on are scored.
struct Window {
  int64_t begin = 0;
  int64_t end = 0;
  int32_t score_from = 0;
  int64_t first_scored = 0;  // scored tokens of the windows before

  int32_t scored() const { return static_cast<int32_t>(end - begin) - score_from; }
};

/// With a stride a window begins so many tokens after the one before, and what that one had not seen is scored; the
/// first window is scored from its second token on, and the last may be shorter. `most`: windows; 0: all.
Result<std::vector<Window>> cut_windows(int64_t tokens, const WindowSizes& sizes, int64_t most);

/// Scored tokens: mean and spread of their negative logprobs.
class Surprise {
 public:
  void add(double nats) {
    sum_ += nats;
    squares_ += nats * nats;
    ++count_;
  }
  int64_t count() const { return count_; }
  double mean() const { return count_ == 0 ? 0.0 : sum_ / static_cast<double>(count_); }
  /// Standard error of the mean.
  double error() const;
  double perplexity() const;
  /// One standard error of it.
  double perplexity_error() const { return perplexity() * error(); }

 private:
  double sum_ = 0.0;
  double squares_ = 0.0;
  int64_t count_ = 0;
};

}  // namespace quern
