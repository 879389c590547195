// Frame: the special tokens that a post-processor puts around a text.
#pragma once

#include <cstdint>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace quern {

struct Frame {
  std::vector<int32_t> before;
  std::vector<int32_t> after;
};

/// From the `post_processor` of a tokenizer.json (for one text, not for pairs); null or nullptr adds nothing.
Result<Frame> frame_from_json(const Json* json);

}  // namespace quern
