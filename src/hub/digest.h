// Digests of files and texts, as hubs and git write them. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace quern {

/// The digest of the first `bytes` of an open file, of the kind that `like` is: 64 hex digits: SHA-256; 40: git's, of a
/// blob.
Result<std::string> file_digest(int descriptor, int64_t bytes, std::string_view like);

/// SHA-256 in hex.
std::string text_digest(std::string_view text);

}  // namespace quern
