// ApiKey: somebody who may ask, and how much. Values.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace quern {

using KeyDigest = std::array<unsigned char, 32>;  // SHA-256
KeyDigest key_digest(std::string_view key);

/// 0: no limit.
struct KeyLimits {
  int64_t requests_per_minute = 0;
  int64_t tokens_per_minute = 0;  // of prompts and answers
  int64_t concurrency = 0;        // requests at the same time
  int32_t priority = 0;           // is added to that of each request; lower goes first

  bool operator==(const KeyLimits&) const = default;
};

struct ApiKey {
  std::string name;  // in logs; "" for keys of the command line
  KeyDigest digest{};
  KeyLimits limits;
};

}  // namespace quern
