// Frame: the special tokens that a post-processor puts around a text.
#pragma once

#include <cstdint>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace quern {

/// A part of a pair: one of its texts or a special token.
struct PairPart {
  int text = -1;   // 0 or 1, -1 for a token
  int32_t id = 0;  // of the token
  int32_t type = 0;
};

struct Frame {
  std::vector<int32_t> before;
  std::vector<int32_t> after;
  std::vector<PairPart> pair = {{0, 0, 0}, {1, 0, 1}};  // how two texts are joined
};

/// From the `post_processor` of a tokenizer.json; null or nullptr adds nothing.
Result<Frame> frame_from_json(const Json* json);

}  // namespace quern
