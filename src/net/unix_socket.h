// A listening socket in the file system. Values.
#pragma once

#include <string>

#include "base/result.h"

namespace quern {

/// The descriptor of a socket that listens at `path`. A socket there that nobody listens on is replaced.
Result<int> listen_at(const std::string& path);

}  // namespace quern
