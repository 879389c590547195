#include "apps/measure/windows.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace quern {
namespace {

/// Whole windows only.
std::vector<Window> halves(int64_t tokens, int32_t context) {
  std::vector<Window> windows;
  for (int64_t begin = 0; begin + context <= tokens; begin += context) {
    windows.push_back({begin, begin + context, context / 2 + 1, 0});
  }
  return windows;
}

std::vector<Window> strided(int64_t tokens, const WindowSizes& sizes) {
  std::vector<Window> windows;
  int64_t seen = 0;
  for (int64_t begin = 0; seen < tokens; begin += sizes.stride) {
    const int64_t end = std::min<int64_t>(begin + sizes.context, tokens);
    windows.push_back({begin, end, static_cast<int32_t>(std::max<int64_t>(1, seen - begin)), 0});
    seen = end;
  }
  return windows;
}

}  // namespace

Result<std::vector<Window>> cut_windows(int64_t tokens, const WindowSizes& sizes, int64_t most) {
  if (sizes.context < 4 || sizes.stride < 0 || sizes.stride > sizes.context) {
    return Error{fmt::format("--context {} --stride {}: a window has at least 4 tokens, and the stride is not longer",
                             sizes.context, sizes.stride)};
  }
  std::vector<Window> windows = sizes.stride == 0 ? halves(tokens, sizes.context) : strided(tokens, sizes);
  if (most > 0 && most < static_cast<int64_t>(windows.size())) windows.resize(static_cast<size_t>(most));
  int64_t scored = 0;
  for (Window& window : windows) {
    window.first_scored = scored;
    scored += std::max(0, window.scored());
  }
  if (scored > 1) return windows;
  return Error{fmt::format("the text has {} tokens, too few for a window of {}; give more text or a smaller --context",
                           tokens, sizes.context)};
}

double Surprise::error() const {
  if (count_ < 2) return 0.0;
  const auto count = static_cast<double>(count_);
  return std::sqrt(std::max(0.0, squares_ / count - mean() * mean()) / (count - 1));
}

double Surprise::perplexity() const { return std::exp(mean()); }

}  // namespace quern
